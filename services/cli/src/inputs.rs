//! Fuzz entry points of the parsers for user-written text. Each function returns whether its parser accepts the text, and panics
//! if a parsed value differs after it is written and parsed again.

use crate::{
    amount::{self, Past, ToCome},
    context::{
        Chosen,
        file::File,
        resolve::{Environment, resolve},
    },
    explain,
    manifest::{self, Setting, Standing},
    submit::{Indexes, document, file, many},
};
use scheduler::query;
use schemas::v1::{self, SettingView, setting_view::Change};
use std::fmt::Debug;
use vocab::{Lsn, Millis, Token};

/// Time at which files are planned, Unix ms.
const NOW_MS: i64 = 1_800_000_000_000;
/// Maximum size of a file; larger documents and expansions only cost time.
const BYTES_MAX: usize = 1 << 14;
const TENANT: &str = "t";

/// Parses a settings file as `plan` and `apply` do. Each planned setting is written as YAML and parsed again.
pub fn settings(text: &str) -> bool {
    if text.len() > BYTES_MAX {
        return false;
    }
    let documents = manifest::read([("input", text)]);
    let Ok(plan) = manifest::plan(&documents, &Standing::default(), false, NOW_MS) else {
        return false;
    };
    let sent: Vec<Change> = plan.sends().map(|(_, send)| send.change.clone()).collect();
    let there = sent.iter().filter(|change| !Setting(change).is_absent());
    for change in there {
        let yaml = Setting(change)
            .yaml()
            .expect("a planned setting can be written");
        let again = manifest::read([("written", &*yaml)]);
        assert!(again.faults().is_empty(), "{:?}\n{yaml}", again.faults());
        let document = &again.all[0];
        let read = document.kind.read(&document.fields);
        let read = read.unwrap_or_else(|wrong| panic!("{wrong}\n{yaml}"));
        // Compares texts, because omitted fields are written as their defaults.
        let written = Setting(&read)
            .yaml()
            .expect("a parsed setting can be written");
        assert_eq!(written, yaml);
    }
    let views: Vec<SettingView> = (1..)
        .zip(sent)
        .map(|(version, change)| view(version, change))
        .collect();
    let standing = Standing::of(&views, NOW_MS).expect("planned settings can be in force");
    let again = manifest::plan(&documents, &standing, false, NOW_MS)
        .expect("the documents can be planned again");
    let next: Vec<_> = again.sends().collect();
    assert!(next.is_empty(), "a second apply changes {next:?}");
    true
}

fn view(version: u64, change: Change) -> SettingView {
    SettingView {
        version,
        change: Some(change),
        ..SettingView::default()
    }
}

/// Parses a file of requests as `submit --file` does. Each request is written as a document and parsed again.
pub fn tasks(text: &str) -> bool {
    if text.len() > BYTES_MAX {
        return false;
    }
    let Ok(all) = requests(text) else {
        return false;
    };
    for request in all {
        // A dependency may be an operation of the same file, which a document of one request cannot name.
        if !request.depends_on.is_empty() {
            continue;
        }
        let document = document(&request, TENANT).to_string();
        let again = requests(&document);
        assert_eq!(again.as_ref(), Ok(&vec![request]), "{document}");
    }
    true
}

/// Returns the requests that would be sent.
fn requests(text: &str) -> Result<Vec<v1::Submit>, Vec<String>> {
    let mut ready = many::ready(file::read("input", text)?, "base")?;
    for one in &mut ready {
        one.of_tenant(TENANT).map_err(|why| vec![why.to_string()])?;
    }
    Ok(ready.into_iter().map(|one| one.submit).collect())
}

/// Parses a contexts file. The parsed file is written and parsed again, and each context is resolved.
pub fn contexts(text: &str) -> bool {
    let Ok(file) = File::parse(text) else {
        return false;
    };
    let written = file.text().expect("a parsed file can be written");
    assert_eq!(
        File::parse(&written).ok().as_ref(),
        Some(&file),
        "{written}"
    );
    for current in file.contexts.keys().cloned() {
        let file = File {
            current: Some(current),
            ..file.clone()
        };
        let resolved = resolve(&Chosen::default(), &Environment::default(), &file, None);
        if let Ok(resolved) = resolved {
            assert!(!resolved.settings.has_secret(), "{written}");
            // A creds file is read only by the command that needs it.
            let _ = resolved.settings.login();
        }
    }
    true
}

/// Renders a reply to `explain` as the command does.
pub fn explanation(reply: &v1::ExplainReply, tenant: &Token) -> bool {
    let Ok(found) = query::explanation(reply, tenant) else {
        return false;
    };
    for at in [None, Some(Lsn(1))] {
        let lines = explain::lines(&found, at, true);
        assert!(!lines.is_empty(), "no lines for {found:?}");
        explain::explanation(&found, at);
    }
    explain::sheet(&found);
    true
}

/// Parses a quantity, duration, moment or list of indexes. Quantities, durations and moments are also written and parsed again.
pub fn amounts(text: &str) -> bool {
    let milli = [
        round(text, amount::cpu_milli, |milli| amount::milli_text(*milli)),
        round(text, amount::thousandths, |milli| {
            amount::milli_text(*milli)
        }),
    ];
    let bytes = round(text, amount::bytes, |bytes| amount::bytes_text(*bytes));
    let duration = round(text, amount::duration_ms, |ms| amount::duration_text(*ms));
    let moment = round(text, amount::moment_ms, |ms| {
        amount::moment_text(Millis(*ms))
    });
    let price = round(
        text,
        |text| amount::micro(text).ok_or(()),
        |micro| amount::micro_text(*micro),
    );
    let others = [
        amount::priority(text).is_ok(),
        amount::some_duration_ms(text).is_ok(),
        text.parse::<Indexes>().is_ok(),
        amount::past(text)
            .map(|past| match past {
                Past::At(ms) | Past::Ago(ms) => (ms, past.ms(NOW_MS)),
            })
            .is_ok(),
        amount::to_come(text)
            .map(|to_come| match to_come {
                ToCome::At(ms) | ToCome::In(ms) => (ms, to_come.ms(NOW_MS)),
            })
            .is_ok(),
    ];
    bytes || duration || moment || price || milli.contains(&true) || others.contains(&true)
}

fn round<T: PartialEq + Debug, E: Debug>(
    text: &str,
    read: impl Fn(&str) -> Result<T, E>,
    write: impl Fn(&T) -> String,
) -> bool {
    let Ok(value) = read(text) else {
        return false;
    };
    let written = write(&value);
    let again = read(&written);
    assert!(
        again.as_ref().is_ok_and(|again| *again == value),
        "{text:?}, written {written:?}: {again:?}"
    );
    true
}
