//! What stands in `#[wire(…)]`.

use proc_macro2::{Span, TokenStream};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Ident, LitInt, LitStr, Result, Token, Type};

/// `5`, `optional`, `name = "…"`, `with = Type`, `flatten(…)`.
struct Item {
    key: String,
    span: Span,
    argument: Argument,
}

enum Argument {
    Nothing,
    Number(LitInt),
    Text(LitStr),
    Type(Box<Type>),
    List(TokenStream),
}

/// The key of a number that stands by itself.
const NUMBER: &str = "a number";

impl Parse for Item {
    fn parse(input: ParseStream) -> Result<Self> {
        if input.peek(LitInt) {
            let number: LitInt = input.parse()?;
            return Ok(Self {
                key: NUMBER.into(),
                span: number.span(),
                argument: Argument::Number(number),
            });
        }
        let key = input.call(Ident::parse_any)?;
        let argument = if input.peek(syn::token::Paren) {
            let list;
            syn::parenthesized!(list in input);
            Argument::List(list.parse()?)
        } else if input.parse::<Option<Token![=]>>()?.is_none() {
            Argument::Nothing
        } else if input.peek(LitStr) {
            Argument::Text(input.parse()?)
        } else if input.peek(LitInt) {
            Argument::Number(input.parse()?)
        } else {
            Argument::Type(input.parse()?)
        };
        let span = key.span();
        let key = key.to_string();
        Ok(Self {
            key,
            span,
            argument,
        })
    }
}

/// Each place takes what it knows; what is left over does not belong there.
pub struct Options {
    items: Vec<Item>,
    span: Span,
}

type Items = Punctuated<Item, Token![,]>;

impl Options {
    /// `span` is where a message about what is missing points to.
    pub fn of(attributes: &[Attribute], span: Span) -> Result<Self> {
        let mut items = Vec::new();
        for attribute in attributes.iter().filter(|a| a.path().is_ident("wire")) {
            items.extend(attribute.parse_args_with(Items::parse_terminated)?);
        }
        Ok(Self { items, span })
    }

    fn take(&mut self, key: &str) -> Option<Item> {
        let at = self.items.iter().position(|item| item.key == key)?;
        Some(self.items.remove(at))
    }

    pub fn has(&self, key: &str) -> bool {
        self.items.iter().any(|item| item.key == key)
    }

    pub fn flag(&mut self, key: &str) -> Result<bool> {
        match self.take(key) {
            None => Ok(false),
            Some(item) if matches!(item.argument, Argument::Nothing) => Ok(true),
            Some(item) => Err(Error::new(item.span, format!("`{key}` takes nothing"))),
        }
    }

    pub fn text(&mut self, key: &str) -> Result<Option<String>> {
        let Some(item) = self.take(key) else {
            return Ok(None);
        };
        match item.argument {
            Argument::Text(text) => Ok(Some(text.value())),
            _ => Err(Error::new(item.span, format!("`{key} = \"…\"` is needed"))),
        }
    }

    pub fn ty(&mut self, key: &str) -> Result<Option<Type>> {
        let Some(item) = self.take(key) else {
            return Ok(None);
        };
        match item.argument {
            Argument::Type(ty) => Ok(Some(*ty)),
            _ => Err(Error::new(item.span, format!("`{key} = Type` is needed"))),
        }
    }

    /// `key(…)`.
    pub fn list(&mut self, key: &str) -> Result<Option<TokenStream>> {
        let Some(item) = self.take(key) else {
            return Ok(None);
        };
        match item.argument {
            Argument::List(list) => Ok(Some(list)),
            _ => Err(Error::new(item.span, format!("`{key}(…)` is needed"))),
        }
    }

    /// `key(1, 2)`, at least one of them.
    pub fn numbers(&mut self, key: &str) -> Result<Option<Vec<u32>>> {
        let span = self.items.iter().find(|item| item.key == key);
        let span = span.map_or(self.span, |item| item.span);
        let Some(list) = self.list(key)? else {
            return Ok(None);
        };
        let list = Punctuated::<LitInt, Token![,]>::parse_terminated.parse2(list)?;
        match list.is_empty() {
            true => Err(Error::new(span, format!("`{key}` needs its numbers"))),
            false => list
                .iter()
                .map(field_number)
                .collect::<Result<_>>()
                .map(Some),
        }
    }

    pub fn number(&mut self) -> Result<u32> {
        match self.take(NUMBER).map(|item| item.argument) {
            Some(Argument::Number(number)) => field_number(&number),
            _ => Err(Error::new(self.span, "a number is missing: `#[wire(1)]`")),
        }
    }

    /// Each name with options of its own: `tenant = 2` is `tenant(2)`.
    pub fn by_name(list: TokenStream) -> Result<Vec<(Ident, Self)>> {
        let named = |item: Item| {
            let name = Ident::new(&item.key, item.span);
            let span = item.span;
            let items = match item.argument {
                Argument::Number(number) => vec![Item {
                    key: NUMBER.into(),
                    span,
                    argument: Argument::Number(number),
                }],
                Argument::List(list) => {
                    let items = Items::parse_terminated.parse2(list)?;
                    items.into_iter().collect()
                }
                _ => {
                    return Err(Error::new(
                        span,
                        format!("a number is missing: `{name} = 1`"),
                    ));
                }
            };
            Ok((name, Self { items, span }))
        };
        let items = Items::parse_terminated.parse2(list)?;
        items.into_iter().map(named).collect()
    }

    pub fn done(self) -> Result<()> {
        match self.items.first() {
            None => Ok(()),
            Some(item) => {
                let text = format!("`{}` does not apply here, or stands here twice", item.key);
                Err(Error::new(item.span, text))
            }
        }
    }
}

fn field_number(number: &LitInt) -> Result<u32> {
    let value: u32 = number.base10_parse()?;
    match value {
        19_000..=19_999 => Err(Error::new(number.span(), "protobuf keeps this number")),
        1..=0x1fff_ffff => Ok(value),
        _ => Err(Error::new(
            number.span(),
            "fields have numbers from 1 to 2^29 - 1",
        )),
    }
}

/// `JobSet` is `job_set`.
pub fn snake(name: &Ident) -> String {
    let mut text = String::new();
    for c in name.unraw().to_string().chars() {
        if c.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(c.to_lowercase());
    }
    text
}
