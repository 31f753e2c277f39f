//! The modules of a crate of rules depend on each other in one direction.
//!
//! A module is a file or a folder directly under `src/`, without its tests. It uses another one when its code names it: in a
//! `use`, in a path, or through a name that `lib.rs` re-exports. `lib.rs` defines the state and may use all modules. A module
//! that names what `lib.rs` itself defines works on the state as a whole and stands above: so an `impl` of the state may
//! stand in a module of its own, but no module below may name that one. There is no circle among the modules.

use super::{code, sources};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

const ROOT: &str = "lib.rs";

/// Whom each module uses, and where it says so.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

/// The names below the crate's root in one file.
struct Names {
    /// How many modules below the root its code stands.
    depth: usize,
    found: BTreeSet<String>,
}

impl Names {
    fn of(text: &str, depth: usize) -> BTreeSet<String> {
        let tokens: TokenStream = text.parse().expect("it compiles");
        let mut names = Self {
            depth,
            found: BTreeSet::new(),
        };
        names.code(&trees(tokens));
        names.found
    }

    fn code(&mut self, mut code: &[TokenTree]) {
        let mut after_a_path = false;
        while let Some((first, rest)) = code.split_first() {
            code = match first {
                TokenTree::Punct(hash) if hash.as_char() == '#' && is_for_tests(rest) => {
                    after_the_item(rest)
                }
                TokenTree::Group(group) => {
                    self.code(&trees(group.stream()));
                    rest
                }
                TokenTree::Ident(word) if !after_a_path && *word == "super" => {
                    self.path(self.depth.checked_sub(1), rest)
                }
                TokenTree::Ident(word) if !after_a_path && *word == "crate" => {
                    self.path(Some(0), rest)
                }
                _ => rest,
            };
            after_a_path = matches!(first, TokenTree::Punct(colon) if colon.as_char() == ':');
        }
    }

    /// The path goes on at so many modules below the root; none: it has left the crate. Returns what comes after it.
    fn path<'a>(&mut self, at: Option<usize>, code: &'a [TokenTree]) -> &'a [TokenTree] {
        let Some(next) = after_colons(code) else {
            return code;
        };
        let Some((first, rest)) = next.split_first() else {
            return next;
        };
        match first {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                for entry in trees(group.stream()).split(is_comma) {
                    self.entry(at, entry);
                }
                rest
            }
            TokenTree::Ident(word) if *word == "super" => {
                self.path(at.and_then(|at| at.checked_sub(1)), rest)
            }
            TokenTree::Ident(word) => {
                if at == Some(0) {
                    self.found.insert(word.to_string());
                }
                rest
            }
            _ => next,
        }
    }

    /// One of several that a `use` names.
    fn entry(&mut self, at: Option<usize>, entry: &[TokenTree]) {
        match entry {
            [TokenTree::Ident(word), rest @ ..] if *word == "super" => {
                self.path(at.and_then(|at| at.checked_sub(1)), rest);
            }
            [TokenTree::Ident(word), ..] if at == Some(0) => {
                self.found.insert(word.to_string());
            }
            _ => {}
        }
    }
}

fn trees(tokens: TokenStream) -> Vec<TokenTree> {
    tokens.into_iter().collect()
}

fn is_comma(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Punct(comma) if comma.as_char() == ',')
}

fn after_colons(code: &[TokenTree]) -> Option<&[TokenTree]> {
    match code {
        [TokenTree::Punct(one), TokenTree::Punct(two), rest @ ..]
            if one.as_char() == ':' && two.as_char() == ':' =>
        {
            Some(rest)
        }
        _ => None,
    }
}

fn is_for_tests(after_hash: &[TokenTree]) -> bool {
    matches!(after_hash.first(), Some(TokenTree::Group(it)) if it.stream().to_string() == "cfg (test)")
}

fn after_the_item(code: &[TokenTree]) -> &[TokenTree] {
    let ends = |tree: &TokenTree| match tree {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(end) => end.as_char() == ';',
        _ => false,
    };
    let end = code.iter().position(ends);
    end.map_or(&[], |end| &code[end + 1..])
}

/// The modules whose names `lib.rs` re-exports, by name.
fn exported(text: &str) -> BTreeMap<String, String> {
    let mut exported = BTreeMap::new();
    let lines: Vec<_> = code(text).map(|(_, line)| line).collect();
    for line in lines.join("\n").split(';') {
        let Some((_, used)) = line.split_once("use ") else {
            continue;
        };
        if let Some((module, names)) = used.split_once("::") {
            let words = names.split(|c: char| !c.is_alphanumeric() && c != '_');
            let names = words.filter(|word| !word.is_empty());
            exported.extend(names.map(|name| (name.to_owned(), module.trim().to_owned())));
        }
    }
    exported
}

/// The graph of the files, each by its path below `src/`.
fn graph(files: &BTreeMap<String, String>) -> Graph {
    let module = |path: &str| path.split(['/', '.']).next().unwrap_or(path).to_owned();
    let own = |path: &&String| !path.contains("tests") && !path.ends_with("properties.rs");
    let below = || files.keys().filter(own).filter(|path| *path != ROOT);
    let modules: BTreeSet<_> = below().map(|path| module(path)).collect();
    let exported = exported(&files[ROOT]);
    let mut graph = Graph::new();
    for path in below() {
        let inner = path.matches('/').count();
        let depth = inner + usize::from(!path.ends_with("/mod.rs"));
        for name in Names::of(&files[path], depth) {
            let to = [Some(&name), exported.get(&name)].into_iter().flatten();
            let to = to.into_iter().find(|name| modules.contains(*name));
            let to = to.map_or(ROOT, |module| module);
            let (from, why) = (module(path), format!("{path} names {name}"));
            if from != to {
                let of = graph.entry(from).or_default();
                of.entry(to.to_owned()).or_insert(why);
            }
        }
    }
    graph
}

/// A way from the last of `way` back to one that is in it.
fn circle_from(graph: &Graph, way: &mut Vec<String>, safe: &mut BTreeSet<String>) -> bool {
    let Some(last) = way.last().filter(|last| !safe.contains(*last)).cloned() else {
        return false;
    };
    for next in graph.get(&last).into_iter().flat_map(BTreeMap::keys) {
        if let Some(begin) = way.iter().position(|module| module == next) {
            way.drain(..begin);
            way.push(next.clone());
            return true;
        }
        way.push(next.clone());
        if circle_from(graph, way, safe) {
            return true;
        }
        way.pop();
    }
    safe.insert(last);
    false
}

/// What is wrong with the graph, in words.
fn fault(graph: &Graph) -> Option<String> {
    let among = |graph: &Graph| {
        let mut safe = BTreeSet::new();
        graph.keys().find_map(|module| {
            let mut way = vec![module.clone()];
            circle_from(graph, &mut way, &mut safe).then_some(way)
        })
    };
    let why = |from: &String, to: &String| graph[from][to].clone();
    if let Some(circle) = among(graph) {
        let steps: Vec<_> = circle.windows(2).map(|of| why(&of[0], &of[1])).collect();
        return Some(format!("{}: {}", circle.join(" -> "), steps.join(", ")));
    }
    let above = |module: &&String| graph.get(*module).is_some_and(|of| of.contains_key(ROOT));
    graph.iter().find_map(|(below, of)| {
        let upper = of.keys().find(above).filter(|_| !above(&below))?;
        let reason = why(below, upper);
        Some(format!(
            "{reason}, which stands above: {}",
            why(upper, &ROOT.into())
        ))
    })
}

#[track_caller]
fn check(files: &[(&str, &str)], expected: Option<&str>) {
    let files = files.iter();
    let files = files.map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
    assert_eq!(fault(&graph(&files.collect())).as_deref(), expected);
}

const STATE: (&str, &str) = (
    "lib.rs",
    "mod a; mod b; pub use b::{B, deep::C}; struct State;",
);

#[test]
fn a_circle_is_named() {
    check(
        &[STATE, ("a.rs", "use super::b::B;"), ("b.rs", "fn f() {}")],
        None,
    );
    check(
        &[
            STATE,
            ("a.rs", "use super::{c, b::{self, B}};"),
            ("b.rs", "fn f(it: &super::a::A) {}"),
        ],
        Some("a -> b -> a: a.rs names b, b.rs names a"),
    );
    check(
        &[
            STATE,
            ("a/mod.rs", "mod x; use crate::C;"),
            (
                "b/y.rs",
                "use super::{z, super::a};\n#[cfg(test)] mod tests { use crate::c; }",
            ),
        ],
        Some("a -> b -> a: a/mod.rs names C, b/y.rs names a"),
    );
    // What is named in a comment, by a test or of another crate is not used.
    check(
        &[
            STATE,
            ("a.rs", "use super::B;"),
            ("b.rs", "// super::a\nfn f() { std::a::g() }"),
            ("b/tests.rs", "use crate::a;"),
        ],
        None,
    );
}

#[test]
fn nobody_below_names_one_who_works_on_the_whole_state() {
    check(
        &[STATE, ("a.rs", "use super::{State, B};"), ("b.rs", "")],
        None,
    );
    check(
        &[
            STATE,
            ("a.rs", "use super::B;"),
            ("b.rs", "use super::State;"),
        ],
        Some("a.rs names B, which stands above: b.rs names State"),
    );
}

#[test]
fn rules_have_no_circle_of_modules() {
    let mut faults = Vec::new();
    for service in ["quota", "scheduler"] {
        let under = format!("services/{service}-rules/src");
        let inside = format!("{under}/");
        let files = sources(&under, ".rs").into_iter().map(|(path, text)| {
            let (_, path) = path
                .split_once(&inside)
                .expect("the path begins with the folder");
            (path.to_owned(), text)
        });
        let fault = fault(&graph(&files.collect()));
        faults.extend(fault.map(|fault| format!("{service}: {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
