//! Enums: by number where no variant has data, and oneofs.

use crate::body::{Body, field_descriptor, oneof_check, oneof_descriptor};
use crate::options::{Options, snake};
use crate::{message_impl, value_impl};
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{DataEnum, DeriveInput, Error, Expr, ExprLit, Fields, Ident, Lit, Result, Type, Variant};

/// Within a macro by example, a literal may stand in a group that nobody sees.
fn number(value: &Expr) -> Result<i32> {
    match value {
        Expr::Group(group) => number(&group.expr),
        Expr::Lit(ExprLit {
            lit: Lit::Int(number),
            ..
        }) => number.base10_parse(),
        other => Err(Error::new_spanned(
            other,
            "a number is needed, from 0 to 2^31 - 1",
        )),
    }
}

pub fn numbers(input: &DeriveInput, data: &DataEnum, mut options: Options) -> Result<TokenStream> {
    let name = &input.ident;
    let proto = name.unraw().to_string();
    let prefix = options.text("prefix")?;
    let prefix = prefix.unwrap_or_else(|| snake(name).to_uppercase() + "_");
    options.done()?;
    let (mut variants, mut numbers, mut descriptors) = (Vec::new(), Vec::new(), Vec::new());
    for variant in &data.variants {
        let ident = &variant.ident;
        if !matches!(variant.fields, Fields::Unit) {
            let text = "variants with data make a oneof: `#[wire(oneof)]` on the enum";
            return Err(Error::new_spanned(variant, text));
        }
        let Some((_, value)) = &variant.discriminant else {
            let text = format!("its number is missing: `{ident} = 1`");
            return Err(Error::new_spanned(variant, text));
        };
        let number = number(value)?;
        Options::of(&variant.attrs, ident.span())?.done()?;
        let proto = prefix.clone() + &snake(ident).to_uppercase();
        variants.push(ident);
        numbers.push(number);
        descriptors.push(quote!(::wire::EnumValue { number: #number, name: #proto }));
    }
    let count = variants.len();
    let value = value_impl(
        name,
        &quote! {
            const KIND: ::wire::Kind = ::wire::Kind::Enum(&::wire::EnumDescriptor {
                name: #proto,
                values: &[#(#descriptors),*],
            });
            const BARE: bool = Self::from_number(0).is_some();
        },
        &quote!(Self::from_number(0)),
        &quote!(self.number() == 0),
        &quote!(::wire::Out::varint(out, number, self.number() as u64)),
        &quote!(::wire::raw::read_number(input, Self::from_number)),
    );
    Ok(quote! {
        #[automatically_derived]
        impl #name {
            /// In the order in which they are declared.
            pub const ALL: [Self; #count] = [#(Self::#variants),*];

            /// The number on the wire.
            pub const fn number(&self) -> i32 {
                match self {
                    #(Self::#variants => #numbers,)*
                }
            }

            /// None: no value has this number.
            pub const fn from_number(number: i32) -> ::core::option::Option<Self> {
                match number {
                    #(#numbers => ::core::option::Option::Some(Self::#variants),)*
                    _ => ::core::option::Option::None,
                }
            }
        }
        // An enum that nobody goes through is no mistake: this uses the list.
        const _: usize = #name::ALL.len();
        #value
    })
}

/// What each variant adds.
#[derive(Default)]
struct Parts {
    numbers: Vec<u32>,
    fields: Vec<TokenStream>,
    writes: Vec<TokenStream>,
    merges: Vec<TokenStream>,
    checks: Vec<TokenStream>,
}

pub fn oneof(input: &DeriveInput, data: &DataEnum, mut options: Options) -> Result<TokenStream> {
    let name = &input.ident;
    let group = match options.flag("message")? {
        true => options.text("oneof")?,
        false => options.flag("oneof").map(|_| None)?,
    };
    let proto = name.unraw().to_string();
    options.done()?;
    let mut parts = Parts::default();
    for variant in &data.variants {
        parts.take(&proto, variant)?;
    }
    parts.numbers.sort_unstable();
    let Parts {
        numbers,
        fields,
        writes,
        merges,
        checks,
    } = parts;
    let as_message = group.map(|group| {
        let path = format!("{proto}.{group}");
        let oneof = oneof_descriptor(&group, &quote!(Self));
        message_impl(
            name,
            &quote!(::wire::MessageDescriptor {
                name: #proto,
                fields: &[],
                oneofs: &[#oneof],
            }),
            &quote!(::wire::Oneof::write_field(self, out)),
            &quote! {
                let mut slot = ::core::option::Option::None;
                ::wire::raw::each_field(body, depth, #proto, |number, input| {
                    if !<Self as ::wire::Oneof>::NUMBERS.contains(&number) {
                        return ::core::result::Result::Ok(false);
                    }
                    <Self as ::wire::Oneof>::merge_field(&mut slot, number, input)
                        .map_err(|error| error.at(#path))?;
                    ::core::result::Result::Ok(true)
                })?;
                ::wire::raw::present(slot, #path)
            },
        )
    });
    Ok(quote! {
        #[automatically_derived]
        impl ::wire::Oneof for #name {
            const NUMBERS: &'static [u32] = &[#(#numbers),*];
            const FIELDS: &'static [::wire::FieldDescriptor] = &[#(#fields),*];

            fn write_field<__Out: ::wire::Out>(&self, out: &mut __Out) {
                match self { #(#writes)* }
            }

            fn merge_field(
                slot: &mut ::core::option::Option<Self>,
                number: u32,
                input: ::wire::Input,
            ) -> ::wire::Result<()> {
                match number {
                    #(#merges)*
                    _ => return ::core::result::Result::Err(::wire::Fault::Invalid.into()),
                }
                ::core::result::Result::Ok(())
            }
        }
        #as_message
        #(#checks)*
    })
}

/// The only field, by its name or by its place.
fn only(variant: &Variant) -> Result<(TokenStream, &Type)> {
    let mut fields = variant.fields.iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(Error::new_spanned(variant, "one field is needed here"));
    };
    match &field.ident {
        Some(member) => Ok((quote!(#member), &field.ty)),
        None => Ok((quote!(0), &field.ty)),
    }
}

impl Parts {
    fn take(&mut self, oneof: &str, variant: &Variant) -> Result<()> {
        let ident = &variant.ident;
        let mut options = Options::of(&variant.attrs, ident.span())?;
        if let Some(numbers) = options.numbers("oneof")? {
            options.done()?;
            self.new_numbers(&numbers, ident, oneof)?;
            self.part(ident, only(variant)?, &numbers);
            return Ok(());
        }
        let number = options.number()?;
        self.new_numbers(&[number], ident, oneof)?;
        let bare = options.flag("bare")?;
        let name = snake(ident);
        let path = format!("{oneof}.{name}");
        if bare || matches!(variant.fields, Fields::Unnamed(_)) {
            options.done()?;
            self.value(ident, only(variant)?, number, [&name, &path]);
            return Ok(());
        }
        let message = options.text("message")?;
        options.done()?;
        let message = message.unwrap_or_else(|| ident.unraw().to_string());
        let variable = |member: &Ident| quote::format_ident!("__{}", member.unraw());
        let reference = |member: &Ident| {
            let variable = variable(member);
            quote!(#variable)
        };
        let body = Body::new(message, &variant.fields, reference)?;
        let bound = variant.fields.iter().flat_map(|field| &field.ident);
        let bound = bound.map(|member| {
            let variable = variable(member);
            quote!(#member: #variable)
        });
        let pattern = quote!(Self::#ident { #(#bound),* });
        self.message(ident, &pattern, number, &body, [&name, &path]);
        Ok(())
    }

    fn new_numbers(&mut self, numbers: &[u32], ident: &Ident, oneof: &str) -> Result<()> {
        for number in numbers {
            if self.numbers.contains(number) {
                let text = format!("number {number} is there twice in {oneof}");
                return Err(Error::new(ident.span(), text));
            }
            self.numbers.push(*number);
        }
        Ok(())
    }

    /// Some of the fields are those of another oneof.
    fn part(&mut self, ident: &Ident, (member, ty): (TokenStream, &Type), numbers: &[u32]) {
        let fields = 0..numbers.len();
        let fields = fields.map(|at| quote!(<#ty as ::wire::Oneof>::FIELDS[#at]));
        self.fields.extend(fields);
        let pattern = quote!(Self::#ident { #member: part });
        self.writes.push(quote! {
            #pattern => ::wire::Oneof::write_field(part, out),
        });
        self.merges.push(quote! {
            #(#numbers)|* => {
                let mut part = match slot.take() {
                    ::core::option::Option::Some(#pattern) => ::core::option::Option::Some(part),
                    _ => ::core::option::Option::None,
                };
                <#ty as ::wire::Oneof>::merge_field(&mut part, number, input)?;
                *slot = part.map(|part| #pattern);
            }
        });
        self.checks.push(oneof_check(&quote!(#ty), numbers));
    }

    /// A field that is one value, whichever it is; always written.
    fn value(
        &mut self,
        ident: &Ident,
        (member, ty): (TokenStream, &Type),
        number: u32,
        [name, path]: [&str; 2],
    ) {
        let shape = quote!(::wire::Shape {
            label: ::wire::Label::Implicit,
            kind: <#ty as ::wire::Value>::KIND,
        });
        self.fields.push(field_descriptor(number, name, &shape));
        let pattern = quote!(Self::#ident { #member: value });
        self.writes.push(quote! {
            #pattern => <#ty as ::wire::Value>::write(value, #number, out),
        });
        self.merges.push(quote! {
            #number => {
                let seen = ::core::matches!(slot, ::core::option::Option::Some(Self::#ident { .. }));
                let value = ::wire::raw::read_chosen::<#ty>(seen, input)
                    .map_err(|error| error.at(#path))?;
                *slot = ::core::option::Option::Some(Self::#ident { #member: value });
            }
        });
    }

    /// A field that is a message of its own, whose fields are those of the variant.
    fn message(
        &mut self,
        ident: &Ident,
        pattern: &TokenStream,
        number: u32,
        body: &Body,
        [name, path]: [&str; 2],
    ) {
        let descriptor = body.descriptor();
        let shape = quote!(::wire::Shape {
            label: ::wire::Label::Implicit,
            kind: ::wire::Kind::Message(|| {
                const MESSAGE: ::wire::MessageDescriptor = #descriptor;
                &MESSAGE
            }),
        });
        self.fields.push(field_descriptor(number, name, &shape));
        let write = body.write();
        let read = body.read(&quote!(Self::#ident));
        self.writes.push(quote! {
            #pattern => ::wire::Out::message(out, #number, |out| { #write }),
        });
        self.merges.push(quote! {
            #number => {
                let seen = ::core::matches!(slot, ::core::option::Option::Some(Self::#ident { .. }));
                let (body, depth) = input.message(seen)
                    .map_err(|error| error.at(#path))?;
                *slot = ::core::option::Option::Some({ #read });
            }
        });
        self.checks.push(body.checks());
    }
}
