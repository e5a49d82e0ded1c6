//! Environments in a TOML file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::named::{EnvironmentId, EnvironmentsError};
use super::provider::{DefaultEnvironment, EnvironmentProvider, Place, Snapshot, TIMEOUT, check_url};

/// A TOML file of environments (feature `toml`). It is read whenever it is asked.
///
/// ```toml
/// default = "builder"      # or "none"; by default `local`, if it is included
/// include_local = true
///
/// [[environments]]
/// id = "builder"
/// program = "ssh"
/// args = ["builder.internal", "longarm", "serve", "--listen", "stdio"]
///
/// [[environments]]
/// id = "lab"
/// url = "ws://lab.internal:7443/exec"
/// connect_timeout_sec = 2.5
/// initialize_timeout_sec = 10
/// ```
///
/// An entry has a `url` or a `program`; `args`, `env` and `cwd` are for programs, `connect_timeout_sec` is for URLs. A relative
/// `cwd` is below the folder of the file. Time limits are 10 s each by default. What is wrong with a file is an error that
/// names the key: also one that is not known, or that stands where it means nothing. No error shows a value of `env`.
///
/// ```no_run
/// // Not run: it reads a file of the host.
/// use longarm::Environment;
/// use longarm::config::ClientConfig;
/// use longarm::environment::{Environments, EnvironmentsFile};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = EnvironmentsFile::new("/etc/agent/environments.toml");
/// let environments = Environments::from_provider(&file, Environment::local(), &ClientConfig::default())?;
/// let Some(place) = environments.default_environment() else { return Ok(()) };
/// place.wait_until_ready().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct EnvironmentsFile {
    path: PathBuf,
}

impl EnvironmentsFile {
    /// The file at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    fn error(&self, reason: impl ToString) -> EnvironmentsError {
        EnvironmentsError::Source { origin: self.path.display().to_string(), reason: reason.to_string() }
    }

    fn read(&self, text: &str) -> Result<Snapshot, EnvironmentsError> {
        let file: File = toml::from_str(text).map_err(|error| self.error(explain(&error, text)))?;
        let base = self.path.parent().unwrap_or_else(|| Path::new(""));
        let mut entries = Vec::new();
        for (place, entry) in file.environments.into_iter().enumerate() {
            let name = format!("environments[{place}]");
            let (id, place) = entry.into_place(base).map_err(|reason| self.error(format!("{name}: {reason}")))?;
            if entries.iter().any(|(known, _)| *known == id) {
                return Err(self.error(format!("{name}: `id`: there is another environment of the name {id}")));
            }
            entries.push((id, place));
        }
        let default = match file.default.as_deref().map(str::trim) {
            None => DefaultEnvironment::Unset,
            Some(id) if id.eq_ignore_ascii_case("none") => DefaultEnvironment::None,
            Some(id) => {
                let id = EnvironmentId::parse(id).map_err(|error| self.error(format!("`default`: {error}")))?;
                let known = entries.iter().any(|(known, _)| *known == id) || (file.include_local && id.is_local());
                if !known {
                    return Err(self.error(format!("`default`: there is no environment of the name {id}")));
                }
                DefaultEnvironment::Id(id)
            }
        };
        Ok(Snapshot { entries, default, include_local: file.include_local })
    }
}

impl EnvironmentProvider for EnvironmentsFile {
    fn snapshot(&self) -> Result<Snapshot, EnvironmentsError> {
        let text = std::fs::read_to_string(&self.path).map_err(|error| self.error(error))?;
        self.read(&text)
    }
}

/// Says where, by line and key, and leaves out the text, which may hold secrets.
fn explain(error: &toml::de::Error, text: &str) -> String {
    let message = without_value(error.message().lines().next().unwrap_or("no TOML"));
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else {
        return message.into_owned();
    };
    let number = before.matches('\n').count();
    let key = text.lines().nth(number).and_then(|line| line.split_once('=')).map(|(key, _)| key.trim());
    match key.filter(|key| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')) {
        Some(key) => format!("line {}: `{key}`: {message}", number + 1),
        None => format!("line {}: {message}", number + 1),
    }
}

/// A value that is not what was expected is part of the parser's text, up to what was.
fn without_value(message: &str) -> Cow<'_, str> {
    let shown = ["invalid type: ", "invalid value: "].into_iter().find(|beginning| message.starts_with(beginning));
    match (shown, message.rsplit_once(", expected ")) {
        (Some(beginning), Some((_, expected))) => Cow::Owned(format!("{beginning}expected {expected}")),
        (Some(beginning), None) => Cow::Owned(beginning.trim_end_matches(": ").to_owned()),
        (None, _) => Cow::Borrowed(message),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    default: Option<String>,
    #[serde(default = "yes")]
    include_local: bool,
    #[serde(default)]
    environments: Vec<Entry>,
}

const fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    url: Option<String>,
    program: Option<String>,
    args: Option<Vec<String>>,
    env: Option<BTreeMap<String, String>>,
    cwd: Option<PathBuf>,
    connect_timeout_sec: Option<f64>,
    initialize_timeout_sec: Option<f64>,
}

impl Entry {
    /// The entry, or what is wrong with it.
    fn into_place(self, base: &Path) -> Result<(EnvironmentId, Place), String> {
        let id = EnvironmentId::parse(&self.id).map_err(|error| format!("`id`: {error}"))?;
        if id.is_local() {
            return Err("`id`: the name local belongs to this machine".into());
        }
        let initialize_timeout = seconds("initialize_timeout_sec", self.initialize_timeout_sec)?;
        let place = match (self.url.as_deref().map(str::trim), self.program.as_deref().map(str::trim)) {
            (Some(_), Some(_)) => return Err("there are both `url` and `program`".into()),
            (None, None) => return Err("there is neither `url` nor `program`".into()),
            (Some(url), None) => {
                check_url(url).map_err(|reason| format!("`url`: {reason}"))?;
                for (key, there) in
                    [("args", self.args.is_some()), ("env", self.env.is_some()), ("cwd", self.cwd.is_some())]
                {
                    if there {
                        return Err(format!("`{key}`: it needs `program`"));
                    }
                }
                let connect_timeout = seconds("connect_timeout_sec", self.connect_timeout_sec)?;
                Place::Url { url: url.into(), connect_timeout, initialize_timeout }
            }
            (None, Some("")) => return Err("`program`: it is empty".into()),
            (None, Some(_)) if self.connect_timeout_sec.is_some() => {
                return Err("`connect_timeout_sec`: it needs `url`".into());
            }
            (None, Some(program)) => Place::Program {
                program: program.into(),
                args: self.args.into_iter().flatten().map(Into::into).collect(),
                env: self.env.into_iter().flatten().map(|(name, value)| (name.into(), value.into())).collect(),
                cwd: self.cwd.map(|cwd| base.join(cwd)),
                initialize_timeout,
            },
        };
        Ok((id, place))
    }
}

/// A time limit.
fn seconds(key: &str, limit: Option<f64>) -> Result<Duration, String> {
    let Some(seconds) = limit else { return Ok(TIMEOUT) };
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|limit| !limit.is_zero())
        .ok_or_else(|| format!("`{key}`: {seconds} is no time limit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Snapshot, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("environments.toml");
        std::fs::write(&path, text).unwrap();
        EnvironmentsFile::new(&path).snapshot().map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_with_all_that_there_is() {
        let source = read(
            r#"
            default = "lab"
            include_local = false

            [[environments]]
            id = "builder"
            program = " ssh "
            args = ["host", "longarm"]
            env = { A = "b" }
            cwd = "below"
            initialize_timeout_sec = 3

            [[environments]]
            id = "lab"
            url = " ws://lab.internal:7443/exec "
            connect_timeout_sec = 2.5
            "#,
        )
        .unwrap();
        assert_eq!(source.default, DefaultEnvironment::Id(EnvironmentId::parse("lab").unwrap()));
        assert!(!source.include_local);
        let Place::Program { program, args, env, cwd, initialize_timeout } = &source.entries[0].1 else { panic!() };
        assert_eq!(*initialize_timeout, Duration::from_secs(3));
        assert_eq!((program.to_str(), args.len(), env.len()), (Some("ssh"), 2, 1));
        assert!(cwd.as_ref().is_some_and(|cwd| cwd.is_absolute() && cwd.ends_with("below")));
        let Place::Url { url, connect_timeout, initialize_timeout } = &source.entries[1].1 else { panic!() };
        assert_eq!(url, "ws://lab.internal:7443/exec");
        assert_eq!((*connect_timeout, *initialize_timeout), (Duration::from_millis(2_500), TIMEOUT));
    }

    #[test]
    fn an_empty_file_is_this_machine_alone() {
        let source = read("").unwrap();
        assert!(source.include_local && source.entries.is_empty());
        assert_eq!(source.default, DefaultEnvironment::Unset);
        assert_eq!(read("default = \"NONE\"").unwrap().default, DefaultEnvironment::None);
    }

    #[test]
    fn what_makes_no_sense_is_an_error_that_names_it() {
        let entry = |lines: &str| format!("[[environments]]\n{lines}\n");
        for (text, part) in [
            ("surprise = 1".to_owned(), "line 1: `surprise`: unknown field"),
            ("include_local = 1".to_owned(), "line 1: `include_local`: invalid type"),
            ("default = \" \"".to_owned(), "`default`: \"\" is no name"),
            ("default = \"lab\"".to_owned(), "`default`: there is no environment of the name lab"),
            ("include_local = false\ndefault = \"local\"".to_owned(), "`default`: there is no environment"),
            ("[[environments]".to_owned(), "line 1: "),
            (entry("id = \"a\"\nurl = \"ws://h\"\nmore = 1"), "line 4: `more`: unknown field"),
            (entry("url = \"ws://h\""), "missing field `id`"),
            (entry("id = \"local\"\nurl = \"ws://h\""), "environments[0]: `id`: the name local belongs"),
            (entry("id = \"a b\"\nurl = \"ws://h\""), "environments[0]: `id`: \"a b\" is no name"),
            (entry("id = \"a\"\nurl = \"ws://h\"").repeat(2), "environments[1]: `id`: there is another"),
            (entry("id = \"a\""), "neither `url` nor `program`"),
            (entry("id = \"a\"\nurl = \"ws://h\"\nprogram = \"x\""), "both `url` and `program`"),
            #[cfg(feature = "websocket")]
            (entry("id = \"a\"\nurl = \"http://h\""), "`url`: invalid address \"http://h:80\": the scheme"),
            #[cfg(feature = "websocket")]
            (entry("id = \"a\"\nurl = \"ws://h:99999\""), "`url`: invalid address"),
            (entry("id = \"a\"\nurl = \"ws://h\"\nargs = []"), "`args`: it needs `program`"),
            (entry("id = \"a\"\nprogram = \" \""), "`program`: it is empty"),
            (entry("id = \"a\"\nprogram = \"x\"\nconnect_timeout_sec = 1"), "`connect_timeout_sec`: it needs `url`"),
            (entry("id = \"a\"\nurl = \"ws://h\"\nconnect_timeout_sec = -1"), "`connect_timeout_sec`: -1 is no"),
            (entry("id = \"a\"\nurl = \"ws://h\"\nconnect_timeout_sec = nan"), "`connect_timeout_sec`: NaN is no"),
            (entry("id = \"a\"\nprogram = \"x\"\ninitialize_timeout_sec = 0"), "`initialize_timeout_sec`: 0 is no"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn an_error_shows_no_value_of_a_variable() {
        for wrong in ["\"hunter2", "[\"hunter2\"]", "\"hunter2\" 1"] {
            let text = format!("[[environments]]\nid = \"a\"\nprogram = \"x\"\nenv = {{ TOKEN = {wrong} }}\n");
            let error = read(&text).unwrap_err();
            assert!(error.contains("line 4") && !error.contains("hunter2"), "{error}");
        }
        for (env, part) in [
            ("{ TOKEN = 123456 }", "expected a string"),
            ("{ TOKEN = true, B = 123456 }", "expected a string"),
            ("\"TOKEN=123456\"", "expected a map"),
            ("\", expected 123456 or so\"", "expected a map"),
            ("{ TOKEN = [\"123456\"] }", "expected a string"),
        ] {
            let text = format!("[[environments]]\nid = \"a\"\nprogram = \"x\"\nenv = {env}\n");
            let error = read(&text).unwrap_err();
            assert!(error.contains("line 4") && error.contains(part), "{error}");
            assert!(!error.contains("123456") && !error.contains("true"), "{error}");
        }
        let missing = EnvironmentsFile::new("/nowhere/environments.toml").snapshot().unwrap_err().to_string();
        assert!(missing.starts_with("/nowhere/environments.toml: "), "{missing}");
    }
}
