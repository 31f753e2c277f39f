//! `#[derive(Table)]`; what it is for, and every attribute, is in the README of `table`.

mod options;

use options::{Clickhouse, Index, OfField, OfTable};
use proc_macro2::TokenStream;
use quote::quote;
use syn::{
    Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, Ident, Lit, Meta, Result,
    ext::IdentExt,
};

#[proc_macro_derive(Table, attributes(table))]
pub fn table(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    derive(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let name = &input.ident;
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(name, "a row is a struct"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(name, "a row has named fields"));
    };
    let of_table = OfTable::of(&input.attrs, name)?;
    let columns: Vec<Column> = fields
        .named
        .iter()
        .map(|field| Column::new(field, of_table.clickhouse.is_some()))
        .collect::<Result<_>>()?;
    if let Some(clickhouse) = &of_table.clickhouse {
        return clickhouse_row(input, &of_table.name, clickhouse, &columns);
    }
    let row = row(input, &of_table, &columns)?;
    // A row that borrows is only written.
    let read = match input.generics.params.is_empty() {
        true => read(name, &columns),
        false => TokenStream::new(),
    };
    Ok(quote!(#row #read))
}

struct Column<'a> {
    field: &'a Field,
    member: &'a Ident,
    name: String,
    options: OfField,
}

impl<'a> Column<'a> {
    fn new(field: &'a Field, of_clickhouse: bool) -> Result<Self> {
        let member = field.ident.as_ref();
        let member = member.ok_or_else(|| Error::new_spanned(field, "fields have names"))?;
        let options = OfField::of(&field.attrs, of_clickhouse)?;
        Ok(Self {
            field,
            member,
            name: member.unraw().to_string(),
            options,
        })
    }

    fn descriptor(&self, table_is_fixed: bool) -> TokenStream {
        let (name, ty) = (&self.name, &self.field.ty);
        let comment = comment(&self.field.attrs);
        let default = optional(self.options.default.as_ref());
        let check = optional(self.options.check.as_ref());
        let fixed = self.options.fixed || table_is_fixed;
        let appended = self.options.appended;
        let merged = optional(self.options.merged.as_ref());
        quote! {
            ::table::Column {
                name: #name,
                comment: #comment,
                ty: <#ty as ::table::Value>::COLUMN,
                element: <#ty as ::table::Value>::ELEMENT.name,
                nullable: <#ty as ::table::Value>::NULLABLE,
                default: #default,
                check: #check,
                check_of_type: <#ty as ::table::Value>::check,
                fixed: #fixed,
                appended: #appended,
                merged: #merged,
            }
        }
    }

    fn clickhouse_descriptor(&self) -> TokenStream {
        let (name, ty) = (&self.name, &self.field.ty);
        let comment = comment(&self.field.attrs);
        let default = optional(self.options.default.as_ref());
        let low_cardinality = self.options.low_cardinality;
        quote! {
            ::table::clickhouse::Column {
                name: #name,
                comment: #comment,
                ty: <#ty as ::table::clickhouse::Value>::TYPE,
                nullable: <#ty as ::table::clickhouse::Value>::NULLABLE,
                low_cardinality: #low_cardinality,
                default: #default,
            }
        }
    }
}

/// Refuses a name that is none of a column; the others as texts.
fn known(names: &[Ident], columns: &[Column], refusal: &str) -> Result<Vec<String>> {
    let known = |one: &Ident| match columns.iter().any(|column| *one == column.name) {
        true => Ok(one.unraw().to_string()),
        false => Err(Error::new_spanned(one, refusal)),
    };
    names.iter().map(known).collect()
}

fn row(input: &DeriveInput, of_table: &OfTable, columns: &[Column]) -> Result<TokenStream> {
    let name = &input.ident;
    let (impl_generics, type_generics, bounds) = input.generics.split_for_impl();
    let key = known(&of_table.key, columns, "the key has no such column")?;
    let table = &of_table.name;
    let comment = comment(&input.attrs);
    let descriptors = columns
        .iter()
        .map(|column| column.descriptor(of_table.fixed));
    let checks = of_table.checks.iter().map(|(name, holds)| {
        let name = name.to_string();
        quote!(::table::Check { name: #name, holds: #holds })
    });
    let indexes = of_table.indexes.iter().map(index);
    let with = optional(of_table.with.as_ref());
    let writes = columns
        .iter()
        .map(|Column { member, name, .. }| quote!(out.value(#name, &self.#member)?;));
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::table::Row for #name #type_generics #bounds {
            const TABLE: &'static ::table::Table = &::table::Table {
                name: #table,
                comment: #comment,
                columns: &[#(#descriptors),*],
                key: &[#(#key),*],
                checks: &[#(#checks),*],
                indexes: &[#(#indexes),*],
                with: #with,
            };

            fn write(
                &self,
                out: &mut impl ::table::Values,
            ) -> ::core::result::Result<(), ::table::RowError> {
                #(#writes)*
                ::core::result::Result::Ok(())
            }
        }
    })
}

fn clickhouse_row(
    input: &DeriveInput,
    table: &str,
    of_table: &Clickhouse,
    columns: &[Column],
) -> Result<TokenStream> {
    let name = &input.ident;
    let (impl_generics, type_generics, bounds) = input.generics.split_for_impl();
    let comment = comment(&input.attrs);
    let descriptors = columns.iter().map(Column::clickhouse_descriptor);
    let engine = &of_table.engine;
    let order_by = known(&of_table.order_by, columns, "the order has no such column")?;
    let text = |text: Option<&Expr>| text.map_or_else(|| quote!(""), |text| quote!(#text));
    let (ttl, settings) = (
        text(of_table.ttl.as_ref()),
        text(of_table.settings.as_ref()),
    );
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics ::table::clickhouse::Row for #name #type_generics #bounds {
            const TABLE: &'static ::table::clickhouse::Table = &::table::clickhouse::Table {
                name: #table,
                comment: #comment,
                columns: &[#(#descriptors),*],
                engine: #engine,
                order_by: &[#(#order_by),*],
                ttl: #ttl,
                settings: #settings,
            };
        }
    })
}

fn index(index: &Index) -> TokenStream {
    let name = index.name.to_string();
    let (unique, on) = (index.unique, &index.on);
    let (using, only) = (
        optional(index.using.as_ref()),
        optional(index.only.as_ref()),
    );
    quote! {
        ::table::Index { name: #name, unique: #unique, using: #using, on: #on, only: #only }
    }
}

fn read(name: &Ident, columns: &[Column]) -> TokenStream {
    let fields = columns
        .iter()
        .map(|Column { member, name, .. }| quote!(#member: ::table::read(row, #name)?,));
    quote! {
        #[automatically_derived]
        impl ::table::FromRow<'_, ::table::PgRow> for #name {
            fn from_row(row: &::table::PgRow) -> ::core::result::Result<Self, ::table::ReadError> {
                ::core::result::Result::Ok(Self { #(#fields)* })
            }
        }
    }
}

fn optional(text: Option<&String>) -> TokenStream {
    match text {
        Some(text) => quote!(::core::option::Option::Some(#text)),
        None => quote!(::core::option::Option::None),
    }
}

/// The doc comment as one line.
fn comment(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(meta) if meta.path.is_ident("doc") => match &meta.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(line),
                    ..
                }) => Some(line.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        });
    lines.collect::<Vec<_>>().join(" ").trim().to_owned()
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
        refused("enum A { B }", "a row is a struct");
        refused("struct A(u32);", "a row has named fields");
        refused("struct A { a: u32 }", "a name is missing: `name = \"…\"`");
        refused(
            "#[table(name = \"a\")] struct A { a: u32 }",
            "a primary key is missing: `key(…)`, or else `keyless`",
        );
        refused(
            "#[table(name = \"a\", key(b))] struct A { a: u32 }",
            "the key has no such column",
        );
        refused(
            "#[table(name = \"a\", key(a), colour = \"red\")] struct A { a: u32 }",
            "`colour` is not known here",
        );
        refused(
            "#[table(name = \"a\", key(a), index(x))] struct A { a: u32 }",
            "columns are missing: `on \"…\"`",
        );
        refused(
            "#[table(name = \"a\", key(a))] struct A { #[table(unique)] a: u32 }",
            "`unique` is not known here",
        );
    }

    #[test]
    fn each_server_has_its_own() {
        refused(
            "#[table(name = \"a\", key(a), clickhouse(order_by(a)))] struct A { a: u32 }",
            "this is of Postgres",
        );
        refused(
            "#[table(name = \"a\", clickhouse(engine = \"Log\"))] struct A { a: u32 }",
            "an order is missing: `order_by(…)`",
        );
        refused(
            "#[table(name = \"a\", clickhouse(order_by(b)))] struct A { a: u32 }",
            "the order has no such column",
        );
        refused(
            "#[table(name = \"a\", clickhouse(order_by(a)))] struct A { #[table(fixed)] a: u32 }",
            "`fixed` is not known here",
        );
        refused(
            "#[table(name = \"a\", key(a))] struct A { #[table(low_cardinality)] a: u32 }",
            "`low_cardinality` is not known here",
        );
    }
}
