//! Which of several sources holds: a flag before the environment, that before a context, that before a local stack.

use super::{
    Chosen, ContextError,
    file::{File, Settings},
};
use std::{
    env,
    path::{Path, PathBuf},
};

/// What the environment says. A variable that is empty is as good as none.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    context: Option<String>,
    settings: Settings,
}

impl Environment {
    pub fn read() -> Self {
        let text = |name| env::var(name).ok().filter(|text| !text.is_empty());
        let path = |name| {
            env::var_os(name)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        };
        Self {
            context: text("APPORTION_CONTEXT"),
            settings: Settings {
                nats_url: text("APPORTION_NATS_URL"),
                cell: text("APPORTION_CELL"),
                tenant: text("APPORTION_TENANT"),
                creds: path("APPORTION_CREDS"),
                token_file: path("APPORTION_TOKEN_FILE"),
                user: text("APPORTION_USER"),
                password_file: path("APPORTION_PASSWORD_FILE"),
                ca_file: path("APPORTION_CA_FILE"),
                stack: None,
            },
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Resolved {
    pub source: String,
    pub settings: Settings,
}

/// `local`: the file of a local stack, if there is one.
pub fn resolve(
    flags: &Chosen,
    environment: &Environment,
    file: &File,
    local: Option<&Path>,
) -> Result<Resolved, ContextError> {
    let said = &environment.settings;
    if let Some(path) = &flags.stack {
        // It is named for all that it says; it says no tenant.
        let settings = Settings {
            tenant: said.tenant.clone(),
            ..of_stack(path)
        };
        let source = format!("the stack {}", path.display());
        return Ok(Resolved { source, settings });
    }
    let named = flags.context.as_ref().or(environment.context.as_ref());
    let (source, below) = match (named.or(file.current.as_ref()), local) {
        (Some(name), _) => (format!("the context {name}"), of_name(name, file)?),
        // Its creds and databases are of no other bus.
        (None, _) if said.nats_url.is_some() => ("the environment".to_owned(), Settings::default()),
        (None, Some(path)) => (format!("the stack {}", path.display()), of_stack(path)),
        (None, None) => return Err(ContextError::None),
    };
    let settings = below.under(said.clone());
    match settings.has_secret() {
        true => Err(ContextError::SecretInUrl),
        false => Ok(Resolved { source, settings }),
    }
}

fn of_stack(path: &Path) -> Settings {
    Settings {
        stack: Some(path.to_owned()),
        ..Settings::default()
    }
}

pub fn of_name(name: &str, file: &File) -> Result<Settings, ContextError> {
    let settings = file.contexts.get(name).cloned();
    settings.ok_or_else(|| {
        let known: Vec<&str> = file.contexts.keys().map(String::as_str).collect();
        ContextError::Unknown {
            name: name.to_owned(),
            known: match known.is_empty() {
                true => "none".to_owned(),
                false => known.join(", "),
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(url: &str) -> Settings {
        let nats_url = Some(url.to_owned());
        Settings {
            nats_url,
            ..Settings::default()
        }
    }

    /// Two contexts, `a` in use; words such as `--context b`, `URL=u`, `TENANT=t`, `CONTEXT=b`, `local` and `unused`.
    fn found(words: &str) -> Result<(String, String), ContextError> {
        let tenant = Some("of-a".to_owned());
        let a = Settings {
            tenant,
            ..url("nats://a")
        };
        let contexts = [("a".to_owned(), a), ("b".to_owned(), url("nats://b"))];
        let mut file = File {
            current: Some("a".to_owned()),
            contexts: contexts.into(),
        };
        let (mut flags, mut environment, mut local) =
            (Chosen::default(), Environment::default(), None);
        for word in words.split_whitespace() {
            match word.split_once('=').unwrap_or((word, "")) {
                ("--context", name) => flags.context = Some(name.to_owned()),
                ("--stack", path) => flags.stack = Some(path.into()),
                ("CONTEXT", name) => environment.context = Some(name.to_owned()),
                ("URL", url) => environment.settings.nats_url = Some(url.to_owned()),
                ("TENANT", name) => environment.settings.tenant = Some(name.to_owned()),
                ("local", _) => local = Some(Path::new("local.json")),
                ("unused", _) => file.current = None,
                (other, _) => panic!("{other}"),
            }
        }
        let resolved = resolve(&flags, &environment, &file, local)?;
        let settings = resolved.settings;
        let stack = settings.stack.map(|path| path.display().to_string());
        let place = settings.nats_url.or(stack).unwrap_or_default();
        Ok((place, settings.tenant.unwrap_or_default()))
    }

    #[test]
    fn a_flag_goes_before_the_environment_that_before_a_context_that_before_a_local_stack() {
        let check = |words: &str, place: &str, tenant: &str| {
            let expected = (place.to_owned(), tenant.to_owned());
            assert_eq!(found(words), Ok(expected), "{words}");
        };
        check("", "nats://a", "of-a");
        check("local", "nats://a", "of-a");
        check("unused local", "local.json", "");
        check("unused local TENANT=t", "local.json", "t");
        check("unused local URL=nats://e", "nats://e", "");
        check("unused URL=nats://e TENANT=t", "nats://e", "t");
        check("CONTEXT=b", "nats://b", "");
        check("--context=b", "nats://b", "");
        check("--context=b CONTEXT=a", "nats://b", "");
        check("unused --context=b local", "nats://b", "");
        check("URL=nats://e", "nats://e", "of-a");
        check("TENANT=t", "nats://a", "t");
        check("CONTEXT=b TENANT=t", "nats://b", "t");
        check("--stack=s.json", "s.json", "");
        check("--stack=s.json local CONTEXT=b", "s.json", "");
        check("--stack=s.json URL=nats://e TENANT=t", "s.json", "t");
    }

    #[test]
    fn what_does_not_say_where_is_refused() {
        let check = |words: &str, error| assert_eq!(found(words), Err(error), "{words}");
        check("unused", ContextError::None);
        let unknown = || ContextError::Unknown {
            name: "c".to_owned(),
            known: "a, b".to_owned(),
        };
        check("--context=c", unknown());
        check("CONTEXT=c local", unknown());
        check("URL=nats://user:hush@e", ContextError::SecretInUrl);
    }
}
