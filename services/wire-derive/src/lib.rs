//! `#[derive(Wire)]`; what it is for, and every attribute, is in the README of `wire`.

mod body;
mod enums;
mod options;

use body::Body;
use options::{Options, doc};
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::{Data, DataStruct, DeriveInput, Error, Fields, Ident, Result, Type};

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
            Ok(message(name, &body, &doc(&input.attrs)))
        }
        Data::Enum(data) if options.has("oneof") => enums::oneof(input, data, options),
        Data::Enum(data) => enums::numbers(input, data, options),
        Data::Union(_) => Err(Error::new_spanned(name, "unions are not supported")),
    }
}

fn message(name: &Ident, body: &Body, doc: &str) -> TokenStream {
    let (write, read) = (body.write(), body.read(&quote!(Self)));
    let message = message_impl(
        name,
        &body.descriptor(doc),
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
        &quote!(out.delimited(|out| ::wire::Message::write_body(self, out))),
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

            fn write_body(&self, out: &mut impl ::wire::Out) {
                #write
            }

            fn read_body(body: &[u8], depth: ::wire::Depth) -> ::wire::Result<Self> {
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

            fn write(&self, out: &mut impl ::wire::Out) {
                #write
            }

            fn read(input: ::wire::Input) -> ::wire::Result<::core::option::Option<Self>> {
                #read
            }
        }
    }
}

fn transparent(name: &Ident, data: &DataStruct) -> Result<TokenStream> {
    let mut fields = data.fields.iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Err(Error::new_spanned(name, "a newtype has one field"));
    };
    let ty = &field.ty;
    let inner = quote!(<#ty as ::wire::Value>);
    let (member, wrap) = match &field.ident {
        Some(member) => (quote!(#member), quote!(|inner| Self { #member: inner })),
        None => (quote!(0), quote!(Self)),
    };
    Ok(value_impl(
        name,
        &quote!(const KIND: ::wire::Kind = #inner::KIND;),
        &quote!(#inner::zero().map(#wrap)),
        &quote!(#inner::is_zero(&self.#member)),
        &quote!(#inner::write(&self.#member, out)),
        &quote!(::core::result::Result::Ok(#inner::read(input)?.map(#wrap))),
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
        &quote!(out.bytes(::wire::Text::as_text(self).as_bytes())),
        &quote!(::wire::raw::read_parsed(input)),
    )
}

fn via(name: &Ident, other: &Type) -> TokenStream {
    let to = quote!(<#other as ::core::convert::From<&Self>>::from(self));
    let from = quote!(<Self as ::core::convert::TryFrom<#other>>::try_from);
    let inner = quote!(<#other as ::wire::Value>);
    value_impl(
        name,
        &quote! {
            const KIND: ::wire::Kind = #inner::KIND;
            const BARE: bool = #inner::BARE;
        },
        &quote!(#inner::zero().and_then(|other| #from(other).ok())),
        &quote!(#inner::is_zero(&#to)),
        &quote!(#inner::write(&#to, out)),
        &quote! {
            match #inner::read(input)? {
                ::core::option::Option::None => ::core::result::Result::Ok(::core::option::Option::None),
                ::core::option::Option::Some(other) => match #from(other) {
                    ::core::result::Result::Ok(value) => {
                        ::core::result::Result::Ok(::core::option::Option::Some(value))
                    }
                    ::core::result::Result::Err(_) => {
                        ::core::result::Result::Err(::wire::Fault::Invalid.into())
                    }
                },
            }
        },
    )
}
