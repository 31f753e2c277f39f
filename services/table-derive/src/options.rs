//! What stands in `#[table(…)]`.

use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::Parse;
use syn::{Attribute, Error, Expr, Ident, LitStr, Path, Result, Token, parenthesized};

pub struct OfTable {
    pub name: String,
    /// It is a table of ClickHouse.
    pub clickhouse: Option<Clickhouse>,
    pub key: Vec<Ident>,
    pub keyless: bool,
    pub checks: Vec<(Ident, String)>,
    pub indexes: Vec<Index>,
    pub with: Option<String>,
    pub fixed: bool,
}

pub struct Clickhouse {
    pub engine: String,
    pub order_by: Vec<Ident>,
    /// Texts, or the names of some.
    pub ttl: Option<Expr>,
    pub settings: Option<Expr>,
}

pub struct Index {
    pub name: Ident,
    pub unique: bool,
    pub using: Option<String>,
    pub on: String,
    pub only: Option<String>,
}

#[derive(Default)]
pub struct OfField {
    pub check: Option<String>,
    pub default: Option<String>,
    pub fixed: bool,
    pub appended: bool,
    pub merged: Option<String>,
    pub low_cardinality: bool,
}

fn each(
    attributes: &[Attribute],
    mut take: impl FnMut(ParseNestedMeta) -> Result<()>,
) -> Result<()> {
    attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("table"))
        .try_for_each(|attribute| attribute.parse_nested_meta(&mut take))
}

fn text(meta: &ParseNestedMeta) -> Result<String> {
    Ok(meta.value()?.parse::<LitStr>()?.value())
}

fn unknown(meta: &ParseNestedMeta) -> Error {
    let name = meta.path.get_ident().map(Ident::to_string);
    meta.error(format!("`{}` is not known here", name.unwrap_or_default()))
}

impl OfTable {
    pub fn of(attributes: &[Attribute], row: &Ident) -> Result<Self> {
        let (mut name, mut of_postgres) = (None, None::<Path>);
        let mut table = Self {
            name: String::new(),
            clickhouse: None,
            key: Vec::new(),
            keyless: false,
            checks: Vec::new(),
            indexes: Vec::new(),
            with: None,
            fixed: false,
        };
        each(attributes, |meta| {
            let key = meta.path.get_ident().map(Ident::to_string);
            if !matches!(key.as_deref(), Some("name" | "clickhouse")) {
                of_postgres = Some(meta.path.clone());
            }
            match key.as_deref() {
                Some("name") => name = Some(text(&meta)?),
                Some("clickhouse") => table.clickhouse = Some(Clickhouse::parse(&meta)?),
                Some("with") => table.with = Some(text(&meta)?),
                Some("fixed") => table.fixed = true,
                Some("key") => table.key = columns(&meta)?,
                Some("keyless") => table.keyless = true,
                Some("check") => table.checks.push(check(&meta)?),
                Some("index") => table.indexes.push(Index::parse(&meta)?),
                _ => return Err(unknown(&meta)),
            }
            Ok(())
        })?;
        let missing = |text| Error::new_spanned(row, text);
        table.name = name.ok_or_else(|| missing("a name is missing: `name = \"…\"`"))?;
        match (&table.clickhouse, of_postgres) {
            (Some(_), Some(other)) => Err(Error::new_spanned(other, "this is of Postgres")),
            (None, _) if table.key.is_empty() != table.keyless => Err(missing(
                "a primary key is missing: `key(…)`, or else `keyless`",
            )),
            _ => Ok(table),
        }
    }
}

/// `(a, b)`.
fn columns(meta: &ParseNestedMeta) -> Result<Vec<Ident>> {
    let list;
    parenthesized!(list in meta.input);
    let columns = list.parse_terminated(Ident::parse, Token![,])?;
    Ok(columns.into_iter().collect())
}

impl Clickhouse {
    /// `clickhouse(order_by(a, b), engine = "…", ttl = …, settings = …)`.
    fn parse(meta: &ParseNestedMeta) -> Result<Self> {
        let mut clickhouse = Self {
            engine: "MergeTree".to_owned(),
            order_by: Vec::new(),
            ttl: None,
            settings: None,
        };
        meta.parse_nested_meta(|meta| {
            let key = meta.path.get_ident().map(Ident::to_string);
            match key.as_deref() {
                Some("engine") => clickhouse.engine = text(&meta)?,
                Some("order_by") => clickhouse.order_by = columns(&meta)?,
                Some("ttl") => clickhouse.ttl = Some(meta.value()?.parse()?),
                Some("settings") => clickhouse.settings = Some(meta.value()?.parse()?),
                _ => return Err(unknown(&meta)),
            }
            Ok(())
        })?;
        match clickhouse.order_by.is_empty() {
            true => Err(meta.error("an order is missing: `order_by(…)`")),
            false => Ok(clickhouse),
        }
    }
}

/// `check(name, "…")`.
fn check(meta: &ParseNestedMeta) -> Result<(Ident, String)> {
    let list;
    parenthesized!(list in meta.input);
    let name = list.parse()?;
    list.parse::<Token![,]>()?;
    let holds: LitStr = list.parse()?;
    list.parse::<Option<Token![,]>>()?;
    Ok((name, holds.value()))
}

impl Index {
    /// `index(name, unique, on "…", using "…", where "…")`.
    fn parse(meta: &ParseNestedMeta) -> Result<Self> {
        let list;
        parenthesized!(list in meta.input);
        let name: Ident = list.parse()?;
        let (mut unique, mut using, mut on, mut only) = (false, None, None, None);
        while list.parse::<Option<Token![,]>>()?.is_some() && !list.is_empty() {
            let key = list.call(Ident::parse_any)?;
            let text = || -> Result<Option<String>> { Ok(Some(list.parse::<LitStr>()?.value())) };
            match key.to_string().as_str() {
                "unique" => unique = true,
                "using" => using = text()?,
                "on" => on = text()?,
                "where" => only = text()?,
                other => {
                    return Err(Error::new(
                        key.span(),
                        format!("`{other}` is not known here"),
                    ));
                }
            }
        }
        let on = on.ok_or_else(|| Error::new(name.span(), "columns are missing: `on \"…\"`"))?;
        Ok(Self {
            name,
            unique,
            using,
            on,
            only,
        })
    }
}

impl OfField {
    pub fn of(attributes: &[Attribute], of_clickhouse: bool) -> Result<Self> {
        let mut field = Self::default();
        each(attributes, |meta| {
            let key = meta.path.get_ident().map(Ident::to_string);
            match key.as_deref() {
                Some("default") => field.default = Some(text(&meta)?),
                Some("low_cardinality") if of_clickhouse => field.low_cardinality = true,
                _ if of_clickhouse => return Err(unknown(&meta)),
                Some("check") => field.check = Some(text(&meta)?),
                Some("fixed") => field.fixed = true,
                Some("appended") => field.appended = true,
                Some("merged") => field.merged = Some(text(&meta)?),
                _ => return Err(unknown(&meta)),
            }
            Ok(())
        })?;
        Ok(field)
    }
}
