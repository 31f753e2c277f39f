//! The fields of a message, whether it is a struct or a variant of an enum.

use crate::options::Options;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Field, Ident, Result, Type};

/// What is one field on the wire, or one oneof.
struct Leaf {
    /// One, or those of the oneof; the lowest says where it stands.
    numbers: Vec<u32>,
    span: Span,
    /// An expression that is a reference to the value.
    reference: TokenStream,
    /// The variable that holds what was read of it.
    slot: Ident,
    ty: TokenStream,
    name: String,
    /// `Message.field`.
    path: String,
    /// None: a oneof.
    codec: Option<TokenStream>,
    shape: TokenStream,
}

pub struct Body {
    name: String,
    /// In the order of their numbers.
    leaves: Vec<Leaf>,
    /// `field: value, …` for the constructor, of what was read.
    rebuild: TokenStream,
}

/// The codec that the options ask for.
fn codec(options: &mut Options, span: Span) -> Result<TokenStream> {
    let explicit = options.flag("optional")?;
    let default = options.flag("default")?;
    match (options.ty("with")?, explicit, default) {
        (None, true, false) => Ok(quote_spanned!(span=> ::wire::Explicit)),
        (None, false, true) => Ok(quote_spanned!(span=> ::wire::OrDefault)),
        (None, false, false) => Ok(quote_spanned!(span=> ::wire::Plain)),
        (Some(codec), false, false) => Ok(quote!(#codec)),
        (Some(other), ..) => Err(Error::new_spanned(other, "this codec is the only one")),
        (None, true, true) => Err(Error::new(
            span,
            "a field is `optional` or left out when it is its `default`, not both",
        )),
    }
}

impl Body {
    pub fn new<'a>(
        name: String,
        fields: impl IntoIterator<Item = &'a Field>,
        reference: impl Fn(&Ident) -> TokenStream,
    ) -> Result<Self> {
        let mut body = Self {
            name,
            leaves: Vec::new(),
            rebuild: TokenStream::new(),
        };
        for field in fields {
            let member = field.ident.as_ref();
            let member = member.ok_or_else(|| Error::new_spanned(field, "fields have names"))?;
            let built = body.field(field, member, reference(member))?;
            body.rebuild.extend(quote!(#member: #built,));
        }
        body.leaves
            .sort_by_key(|leaf| leaf.numbers.iter().min().copied());
        body.check()?;
        Ok(body)
    }

    /// Takes a field in, and says what it is built from.
    fn field(
        &mut self,
        field: &Field,
        member: &Ident,
        reference: TokenStream,
    ) -> Result<TokenStream> {
        let mut options = Options::of(&field.attrs, member.span())?;
        let ty = &field.ty;
        if let Some(parts) = options.list("flatten")? {
            options.done()?;
            let Type::Path(owner) = ty else {
                return Err(Error::new_spanned(ty, "only a struct can be flattened"));
            };
            let mut built = TokenStream::new();
            for (part, options) in Options::by_name(parts)? {
                let shape = |codec: &TokenStream| quote_spanned!(part.span()=> ::wire::raw::shape_of::<#codec, #ty, _>(|it| &it.#part));
                let reference = quote!(&(#reference).#part);
                let leaf = self.leaf(
                    options,
                    &part,
                    reference,
                    quote_spanned!(part.span()=> _),
                    shape,
                )?;
                built.extend(quote!(#part: #leaf,));
            }
            return Ok(quote!(#owner { #built }));
        }
        if let Some(numbers) = options.numbers("oneof")? {
            options.done()?;
            let name = member.unraw().to_string();
            let slot = format_ident!("__slot_{}", self.leaves.len());
            let path = format!("{}.{name}", self.name);
            let built = quote!(::wire::raw::present(#slot, #path)?);
            self.leaves.push(Leaf {
                numbers,
                span: member.span(),
                reference,
                slot,
                ty: quote!(#ty),
                name,
                path,
                codec: None,
                shape: TokenStream::new(),
            });
            return Ok(built);
        }
        // What the compiler says of the field's type is said of it where it stands.
        let shape =
            |codec: &TokenStream| quote_spanned!(ty.span()=> <#codec as ::wire::Codec<#ty>>::SHAPE);
        self.leaf(options, member, reference, quote!(#ty), shape)
    }

    fn leaf(
        &mut self,
        mut options: Options,
        member: &Ident,
        reference: TokenStream,
        ty: TokenStream,
        shape: impl Fn(&TokenStream) -> TokenStream,
    ) -> Result<TokenStream> {
        let number = options.number()?;
        let codec = codec(&mut options, ty.span())?;
        let name = options.text("name")?;
        options.done()?;
        let name = name.unwrap_or_else(|| member.unraw().to_string());
        let slot = format_ident!("__slot_{}", self.leaves.len());
        let path = format!("{}.{name}", self.name);
        let built = quote_spanned!(ty.span()=> ::wire::raw::finish::<#codec, _>(#slot, #path)?);
        self.leaves.push(Leaf {
            numbers: vec![number],
            span: member.span(),
            reference,
            slot,
            ty,
            name,
            path,
            shape: shape(&codec),
            codec: Some(codec),
        });
        Ok(built)
    }

    fn check(&self) -> Result<()> {
        let mut seen: Vec<u32> = Vec::new();
        for leaf in &self.leaves {
            for number in &leaf.numbers {
                if seen.contains(number) {
                    let text = format!("number {number} is there twice in {}", self.name);
                    return Err(Error::new(leaf.span, text));
                }
                seen.push(*number);
            }
        }
        Ok(())
    }

    /// From the last field to the first.
    pub fn write(&self) -> TokenStream {
        let writes = self.leaves.iter().rev().map(|leaf| {
            let Leaf { reference, ty, .. } = leaf;
            let number = leaf.numbers[0];
            match &leaf.codec {
                Some(codec) => {
                    quote_spanned!(ty.span()=> <#codec as ::wire::Codec<_>>::write_field(#reference, #number, out);)
                }
                None => quote!(::wire::Oneof::write_field(#reference, out);),
            }
        });
        quote!(#(#writes)*)
    }

    /// Statements that read `body` at `depth`, and an expression that is what was read.
    pub fn read(&self, constructor: &TokenStream) -> TokenStream {
        let slots = self.leaves.iter().map(|Leaf { slot, ty, .. }| {
            quote!(let mut #slot: ::core::option::Option<#ty> = ::core::option::Option::None;)
        });
        let arms = self.leaves.iter().map(|leaf| {
            let Leaf { slot, path, ty, .. } = leaf;
            let numbers = &leaf.numbers;
            let merge = match &leaf.codec {
                Some(codec) => quote_spanned! {ty.span()=>
                    <#codec as ::wire::Codec<#ty>>::merge_field(&mut #slot, input)
                },
                None => quote! {
                    <#ty as ::wire::Oneof>::merge_field(&mut #slot, number, input)
                },
            };
            quote!(#(#numbers)|* => #merge.map_err(|error| error.at(#path))?,)
        });
        let Self { name, rebuild, .. } = self;
        let take = match self.leaves.is_empty() {
            true => quote!(|_, _| ::core::result::Result::Ok(false)),
            false => quote!(|number, input| {
                match number {
                    #(#arms)*
                    _ => return ::core::result::Result::Ok(false),
                }
                ::core::result::Result::Ok(true)
            }),
        };
        quote! {
            #(#slots)*
            ::wire::raw::each_field(body, depth, #name, #take)?;
            #constructor { #rebuild }
        }
    }

    /// That the numbers that are said of a oneof are its own.
    pub fn checks(&self) -> TokenStream {
        let oneofs = self.leaves.iter().filter(|leaf| leaf.codec.is_none());
        let checks = oneofs.map(|leaf| oneof_check(&leaf.ty, &leaf.numbers));
        quote!(#(#checks)*)
    }

    pub fn descriptor(&self) -> TokenStream {
        let (fields, oneofs): (Vec<_>, Vec<_>) =
            self.leaves.iter().partition(|leaf| leaf.codec.is_some());
        let fields = fields.into_iter().map(|leaf| {
            let Leaf { name, shape, .. } = leaf;
            field_descriptor(leaf.numbers[0], name, shape)
        });
        let oneofs = oneofs
            .into_iter()
            .map(|Leaf { name, ty, .. }| oneof_descriptor(name, ty));
        let name = &self.name;
        quote! {
            ::wire::MessageDescriptor {
                name: #name,
                fields: &[#(#fields),*],
                oneofs: &[#(#oneofs),*],
            }
        }
    }
}

pub fn field_descriptor(number: u32, name: &str, shape: &TokenStream) -> TokenStream {
    quote!(::wire::FieldDescriptor { number: #number, name: #name, shape: #shape })
}

pub fn oneof_descriptor(name: &str, ty: &TokenStream) -> TokenStream {
    quote! {
        ::wire::OneofDescriptor {
            name: #name,
            fields: <#ty as ::wire::Oneof>::FIELDS,
        }
    }
}

pub fn oneof_check(ty: &TokenStream, numbers: &[u32]) -> TokenStream {
    let mut numbers = numbers.to_vec();
    numbers.sort_unstable();
    quote_spanned! {ty.span()=>
        const _: () = ::core::assert!(
            ::wire::raw::same_numbers(<#ty as ::wire::Oneof>::NUMBERS, &[#(#numbers),*]),
            "`oneof(…)` does not have the numbers of the oneof",
        );
    }
}
