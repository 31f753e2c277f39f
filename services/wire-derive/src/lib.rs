//! `#[derive(Wire)]`; what it is for, and every attribute, is in the README of `wire`.

mod body;
mod enums;
mod options;

use body::Body;
use options::Options;
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DataStruct, DeriveInput, Error, Field, Fields, Ident, Result, Type};

#[proc_macro_derive(Wire, attributes(wire))]
pub fn wire(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    derive(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "generic types are not supported",
        ));
    }
    let mut options = Options::of(&input.attrs, name.span())?;
    if options.flag("text")? {
        options.done()?;
        return Ok(text(name));
    }
    if let Some(other) = options.ty("via")? {
        options.done()?;
        return Ok(via(name, &other));
    }
    match &input.data {
        Data::Struct(data) if options.flag("transparent")? => {
            options.done()?;
            transparent(name, data)
        }
        Data::Struct(data) => {
            let Fields::Named(fields) = &data.fields else {
                let text = "a message has named fields; a newtype is `#[wire(transparent)]`";
                return Err(Error::new_spanned(name, text));
            };
            let proto = options.text("name")?;
            options.done()?;
            let proto = proto.unwrap_or_else(|| name.unraw().to_string());
            let body = Body::new(proto, &fields.named, |member| quote!(&self.#member))?;
            Ok(message(name, &body))
        }
        Data::Enum(data) if options.has("oneof") => enums::oneof(input, data, options),
        Data::Enum(data) => enums::numbers(input, data, options),
        Data::Union(_) => Err(Error::new_spanned(name, "unions are not supported")),
    }
}

fn message(name: &Ident, body: &Body) -> TokenStream {
    let (write, read) = (body.write(), body.read(&quote!(Self)));
    let message = message_impl(
        name,
        &body.descriptor(),
        &write,
        &quote!(::core::result::Result::Ok({ #read })),
    );
    let checks = body.checks();
    quote!(#message #checks)
}

/// A message is a value of the messages that it is a field of.
fn message_impl(
    name: &Ident,
    descriptor: &TokenStream,
    write: &TokenStream,
    read: &TokenStream,
) -> TokenStream {
    let value = value_impl(
        name,
        &quote! {
            const KIND: ::wire::Kind =
                ::wire::Kind::Message(|| <Self as ::wire::Message>::DESCRIPTOR);
        },
        &quote!(::core::option::Option::None),
        &quote!(false),
        &quote!(::wire::Out::message(out, number, |out| {
            ::wire::Message::write_body(self, out)
        })),
        &quote! {
            let (body, depth) = input.message(false)?;
            let message = <Self as ::wire::Message>::read_body(body, depth)?;
            ::core::result::Result::Ok(::core::option::Option::Some(message))
        },
    );
    quote! {
        #[automatically_derived]
        impl ::wire::Message for #name {
            const DESCRIPTOR: &'static ::wire::MessageDescriptor = &#descriptor;

            fn write_body<__Out: ::wire::Out>(&self, out: &mut __Out) {
                #write
            }

            fn read_body(body: ::wire::Body, depth: ::wire::Depth) -> ::wire::Result<Self> {
                #read
            }
        }
        // Said here so that what is wrong with it is found when the type is compiled, and not where it is used.
        const _: &::wire::MessageDescriptor = <#name as ::wire::Message>::DESCRIPTOR;
        #value
    }
}

fn value_impl(
    name: &Ident,
    constants: &TokenStream,
    zero: &TokenStream,
    is_zero: &TokenStream,
    write: &TokenStream,
    read: &TokenStream,
) -> TokenStream {
    quote! {
        #[automatically_derived]
        impl ::wire::Value for #name {
            #constants

            fn zero() -> ::core::option::Option<Self> {
                #zero
            }

            fn is_zero(&self) -> bool {
                #is_zero
            }

            fn write<__Out: ::wire::Out>(&self, number: u32, out: &mut __Out) {
                #write
            }

            fn read(input: ::wire::Input) -> ::wire::Result<::core::option::Option<Self>> {
                #read
            }
        }
    }
}

fn transparent(name: &Ident, data: &DataStruct) -> Result<TokenStream> {
    let fields = match &data.fields {
        Fields::Unnamed(fields) => fields.unnamed.iter().collect(),
        _ => Vec::new(),
    };
    let [Field { ty, .. }] = fields[..] else {
        let text = "a newtype has one field, which has no name";
        return Err(Error::new_spanned(name, text));
    };
    let inner = quote!(<#ty as ::wire::Value>);
    Ok(value_impl(
        name,
        &quote!(const KIND: ::wire::Kind = #inner::KIND;),
        &quote!(#inner::zero().map(Self)),
        &quote!(#inner::is_zero(&self.0)),
        &quote!(#inner::write(&self.0, number, out)),
        &quote!(::core::result::Result::Ok(#inner::read(input)?.map(Self))),
    ))
}

fn text(name: &Ident) -> TokenStream {
    value_impl(
        name,
        &quote!(
            const KIND: ::wire::Kind = ::wire::Kind::String;
        ),
        &quote!(::core::option::Option::None),
        &quote!(false),
        &quote!(::wire::Out::text(
            out,
            number,
            ::wire::Text::as_text(self).as_bytes()
        )),
        &quote!(::wire::raw::read_parsed(input)),
    )
}

fn via(name: &Ident, other: &Type) -> TokenStream {
    let to = quote!(<#other as ::core::convert::From<&Self>>::from(self));
    let from = quote!(<Self as ::core::convert::From<#other>>::from);
    let inner = quote!(<#other as ::wire::Value>);
    value_impl(
        name,
        &quote! {
            const KIND: ::wire::Kind = #inner::KIND;
            const BARE: bool = #inner::BARE;
        },
        &quote!(#inner::zero().map(#from)),
        &quote!(#inner::is_zero(&#to)),
        &quote!(#inner::write(&#to, number, out)),
        &quote!(::core::result::Result::Ok(#inner::read(input)?.map(#from))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(source: &str, expected: &str) {
        let input = syn::parse_str(source).expect("it is a type");
        let error = derive(&input).expect_err("it is refused");
        assert_eq!(error.to_string(), expected, "{source}");
    }

    #[test]
    fn what_cannot_be_is_said() {
        let number = "a number is missing: `#[wire(1)]`";
        refused("struct A { a: u32 }", number);
        refused("struct A { #[wire(optional)] a: Option<u32> }", number);
        refused("#[wire(oneof)] enum A { B(u32) }", number);
        refused("#[wire(oneof)] enum A { #[wire(1)] B { c: u32 } }", number);
        refused(
            "struct A { #[wire(flatten(b))] a: B }",
            "a number is missing: `b = 1`",
        );
        refused("enum A { B = 1, C }", "its number is missing: `C = 1`");
        refused(
            "struct A { #[wire(oneof())] a: B }",
            "`oneof` needs its numbers",
        );
        refused(
            "struct A { #[wire(1)] a: u32, #[wire(1)] b: u32 }",
            "number 1 is there twice in A",
        );
        refused(
            "struct A { #[wire(flatten(b = 1))] a: B, #[wire(oneof(2, 1))] c: C }",
            "number 1 is there twice in A",
        );
        refused(
            "#[wire(oneof)] enum A { #[wire(1)] B(u32), #[wire(1)] C(D) }",
            "number 1 is there twice in A",
        );
        for number in ["0", "536870912"] {
            refused(
                &format!("struct A {{ #[wire({number})] a: u32 }}"),
                "fields have numbers from 1 to 2^29 - 1",
            );
        }
        refused(
            "struct A { #[wire(19500)] a: u32 }",
            "protobuf keeps this number",
        );
        refused(
            "struct A(u32);",
            "a message has named fields; a newtype is `#[wire(transparent)]`",
        );
        refused(
            "#[wire(transparent)] struct A(u32, u32);",
            "a newtype has one field, which has no name",
        );
        refused(
            "#[wire(transparent)] struct A { a: u32 }",
            "a newtype has one field, which has no name",
        );
        refused(
            "#[wire(oneof, message)] enum A { #[wire(1)] B(u32) }",
            "`oneof = \"…\"` is needed",
        );
        refused(
            "#[wire(oneof = \"kind\")] enum A { #[wire(1)] B(u32) }",
            "`oneof` takes nothing",
        );
        refused(
            "struct A<T> { #[wire(1)] a: T }",
            "generic types are not supported",
        );
        refused("union A { a: u32 }", "unions are not supported");
        refused(
            "enum A { B(u32) }",
            "variants with data make a oneof: `#[wire(oneof)]` on the enum",
        );
        refused(
            "enum A { B = -1 }",
            "a number is needed, from 0 to 2^31 - 1",
        );
        refused(
            "#[wire(oneof)] enum A { #[wire(1)] B(u32, u32) }",
            "one field is needed here",
        );
        refused(
            "struct A { #[wire(flatten(b = 1))] a: (u32, u32) }",
            "only a struct can be flattened",
        );
        refused(
            "struct A { #[wire(1, optional, default)] a: u32 }",
            "a field is `optional` or left out when it is its `default`, not both",
        );
        refused(
            "struct A { #[wire(1, optional, with = B)] a: u32 }",
            "this codec is the only one",
        );
        refused(
            "struct A { #[wire(1, text)] a: u32 }",
            "`text` does not apply here, or stands here twice",
        );
        refused(
            "struct A { #[wire(1, 2)] a: u32 }",
            "`a number` does not apply here, or stands here twice",
        );
        refused(
            "struct A { #[wire(1, name = b)] a: u32 }",
            "`name = \"…\"` is needed",
        );
    }
}
