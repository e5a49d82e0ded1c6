//! The text of a policy, evaluated as the policy language says: of the rules that match, the last decides. It must come to
//! what the bound intent says of every path.

use proptest::prelude::*;

use super::*;
use crate::sandbox::bound::Existing;
use crate::sandbox::glob::{self, BoundGlob};

/// An expression of the policy language.
#[derive(Debug)]
enum Form {
    Atom(String),
    Text(String),
    List(Vec<Self>),
}

impl Form {
    fn list(&self) -> &[Self] {
        if let Self::List(items) = self { items } else { panic!("no list: {self:?}") }
    }

    fn atom(&self) -> &str {
        if let Self::Atom(atom) = self { atom } else { panic!("no atom: {self:?}") }
    }
}

fn parse(text: &str) -> Vec<Form> {
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with(';')).collect();
    let text: Vec<char> = lines.join("\n").chars().collect();
    let mut at = 0;
    let mut forms = Vec::new();
    while let Some(form) = next(&text, &mut at) {
        forms.push(form);
    }
    assert_eq!(at, text.len(), "every bracket has its other one");
    forms
}

fn next(text: &[char], at: &mut usize) -> Option<Form> {
    while text.get(*at).is_some_and(|char| char.is_whitespace()) {
        *at += 1;
    }
    match *text.get(*at)? {
        ')' => None,
        '(' => {
            *at += 1;
            let mut items = Vec::new();
            while let Some(item) = next(text, at) {
                items.push(item);
            }
            assert_eq!(text.get(*at), Some(&')'));
            *at += 1;
            Some(Form::List(items))
        }
        '"' => {
            let mut string = String::new();
            *at += 1;
            while text[*at] != '"' {
                *at += usize::from(text[*at] == '\\');
                string.push(text[*at]);
                *at += 1;
            }
            *at += 1;
            Some(Form::Text(string))
        }
        _ => {
            let start = *at;
            while text.get(*at).is_some_and(|char| !char.is_whitespace() && !"()".contains(*char)) {
                *at += 1;
            }
            Some(Form::Atom(text[start..*at].iter().collect()))
        }
    }
}

struct Evaluator {
    rules: Vec<Form>,
    parameters: Vec<(String, PathBuf)>,
}

impl Evaluator {
    fn new(policy: &SeatbeltPolicy) -> Self {
        Self { rules: parse(&policy.text), parameters: policy.parameters.clone() }
    }

    fn allows(&self, operation: &str, path: &Path) -> bool {
        let mut allowed = false;
        for rule in &self.rules {
            let [verdict, rest @ ..] = rule.list() else { panic!("an empty rule") };
            let verdict = match verdict.atom() {
                "allow" => true,
                "deny" => false,
                "version" => continue,
                other => panic!("no rule: {other}"),
            };
            let operations = rest.iter().take_while(|form| matches!(form, Form::Atom(_)));
            let filters = &rest[operations.clone().count()..];
            let is_meant = operations.map(Form::atom).any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => operation.starts_with(beginning),
                None => pattern == operation || pattern == "default",
            });
            // Several filters of a rule: any will do.
            if is_meant && (filters.is_empty() || filters.iter().any(|filter| self.matches(filter, path))) {
                allowed = verdict;
            }
        }
        allowed
    }

    fn matches(&self, filter: &Form, path: &Path) -> bool {
        let [kind, arguments @ ..] = filter.list() else { panic!("an empty filter") };
        match kind.atom() {
            "require-all" => arguments.iter().all(|filter| self.matches(filter, path)),
            "require-not" => !self.matches(&arguments[0], path),
            "literal" => path == self.path(&arguments[0]),
            "subpath" => path.starts_with(self.path(&arguments[0])),
            "regex" => {
                let Form::Text(regex) = &arguments[0] else { panic!("no text") };
                let regex: Vec<char> = regex.chars().collect();
                let path: Vec<char> = path.to_str().unwrap().chars().collect();
                // Those of constant rules may match anywhere.
                let (anchored, regex) = match regex.strip_prefix(&['^']) {
                    Some(regex) => (true, regex),
                    None => (false, &regex[..]),
                };
                (0..=path.len()).take(if anchored { 1 } else { usize::MAX }).any(|from| fits(regex, &path[from..]))
            }
            // What is no matter of paths of files.
            "extension" | "vnode-type" => false,
            other => panic!("no filter: {other}"),
        }
    }

    fn path<'a>(&'a self, form: &'a Form) -> &'a Path {
        match form {
            Form::Text(path) => Path::new(path),
            Form::List(items) => {
                let Form::Text(wanted) = &items[1] else { panic!("no name") };
                &self.parameters.iter().find(|(name, _)| name == wanted).expect("a parameter that is given").1
            }
            Form::Atom(atom) => panic!("no path: {atom}"),
        }
    }
}

/// Whether a regular expression of the forms that policies use matches at the beginning.
fn fits(regex: &[char], text: &[char]) -> bool {
    match regex {
        [] => true,
        ['$', ..] => text.is_empty(),
        ['(', ..] => {
            let close = regex.iter().position(|char| *char == ')').unwrap();
            let (inner, rest) = (&regex[1..close], &regex[close + 1..]);
            let rest = rest.strip_prefix(&['?']).expect("groups may be missing");
            let with: Vec<char> = inner.iter().chain(rest).copied().collect();
            fits(rest, text) || fits(&with, text)
        }
        _ => {
            let (takes, length): (Box<dyn Fn(char) -> bool>, usize) = match regex {
                ['\\', literal, ..] => {
                    let literal = *literal;
                    (Box::new(move |char| char == literal), 2)
                }
                ['[', '^', ..] => {
                    let close = regex.iter().position(|char| *char == ']').unwrap();
                    let members = regex[2..close].to_vec();
                    (Box::new(move |char| !members.contains(&char)), close + 1)
                }
                ['[', ..] => {
                    let close = regex.iter().position(|char| *char == ']').unwrap();
                    let members = regex[1..close].to_vec();
                    let in_range = move |char: char| members == ['0', '-', '9'] && char.is_ascii_digit();
                    let members = regex[1..close].to_vec();
                    (Box::new(move |char| members.contains(&char) || in_range(char)), close + 1)
                }
                ['.', ..] => (Box::new(|_| true), 1),
                [literal, ..] => {
                    let literal = *literal;
                    (Box::new(move |char| char == literal), 1)
                }
                [] => unreachable!(),
            };
            let rest = &regex[length..];
            let taken = text.iter().take_while(|char| takes(**char)).count();
            match rest.first() {
                Some('*') => (0..=taken).any(|count| fits(&rest[1..], &text[count..])),
                Some('+') => (1..=taken).any(|count| fits(&rest[1..], &text[count..])),
                _ => taken > 0 && fits(rest, &text[1..]),
            }
        }
    }
}

fn any_path() -> impl Strategy<Value = PathBuf> {
    proptest::collection::vec(prop_oneof!["x", "y", "xy", "X", "a\\.b"], 1..5)
        .prop_map(|names| Path::new("/").join(names.join("/")))
}

fn any_access() -> impl Strategy<Value = Access> {
    prop_oneof![Just(Access::Deny), Just(Access::Read), Just(Access::Write)]
}

fn any_entry() -> impl Strategy<Value = BoundEntry> {
    let origin = prop_oneof![Just(Origin::Entry), Just(Origin::Protected)];
    (any_path(), any_access(), origin, any::<bool>()).prop_map(|(path, access, origin, missing)| {
        let kind = if missing && access != Access::Write { Existing::Missing } else { Existing::Directory };
        BoundEntry { lexical: path.clone(), path, access, kind, skip_missing: false, origin }
    })
}

fn any_bound(globs: std::ops::Range<usize>) -> impl Strategy<Value = Bound> {
    let pattern = prop_oneof!["\\*", "\\*\\*/x", "y\\*/\\*", "\\?"];
    let glob = (any_path(), pattern).prop_map(|(base, text)| {
        let pattern = glob::parse(&text, glob::Anchor::Absolute, false).unwrap().remove(0).pattern;
        BoundGlob { text, base, has_base: true, pattern }
    });
    let root = proptest::option::of(prop_oneof![Just(Access::Read), Just(Access::Write)]);
    let entries = proptest::collection::vec(any_entry(), 0..6);
    (root, entries, proptest::collection::vec(glob, globs)).prop_map(|(root, mut entries, globs)| {
        entries.sort_by(|a, b| (&a.path, a.access).cmp(&(&b.path, b.access)));
        entries.dedup_by(|later, earlier| later.path == earlier.path);
        // As binding has it: a protected name is read-only.
        for entry in entries.iter_mut().filter(|entry| entry.access == Access::Write) {
            entry.origin = Origin::Entry;
        }
        Bound {
            class: Class::RestrictedRead,
            root,
            entries,
            aliases: Vec::new(),
            network: NetworkPolicy::Restricted,
            workspace_roots: Vec::new(),
            cwd: None,
            globs,
            glob_scan_max_depth: None,
            protected: Vec::new(),
            minimal: false,
        }
    })
}

proptest! {
    #[test]
    fn without_patterns_the_policy_says_of_each_path_what_the_bound_intent_says(
        bound in any_bound(0..1),
        paths in proptest::collection::vec(any_path(), 1..20),
    ) {
        let policy = Evaluator::new(&SeatbeltPolicy::new(&bound, None, None).unwrap());
        let named = bound.entries.iter().map(|entry| entry.path.clone());
        let lower = |path: &Path| path.to_str().unwrap().to_lowercase();
        // A name that is held in every spelling takes from what else has one of them.
        let is_held = |path: &Path| {
            let held = |entry: &&BoundEntry| entry.origin == Origin::Protected || entry.kind == Existing::Missing;
            bound.entries.iter().filter(held).any(|entry| path.ancestors().any(|path| lower(path) == lower(&entry.path)))
        };
        for path in paths.into_iter().chain(named.collect::<Vec<_>>()) {
            for (operation, expected) in [
                ("file-read-data", bound.can_read(&path)),
                ("process-exec", bound.can_read(&path)),
                ("file-map-executable", bound.can_read(&path)),
                ("file-write-data", bound.can_write(&path)),
            ] {
                let allowed = policy.allows(operation, &path);
                prop_assert!(allowed == expected || expected && is_held(&path), "{} {:?}: {}", operation, path, allowed);
            }
        }
    }

    #[test]
    fn with_patterns_the_policy_is_never_wider(
        bound in any_bound(1..3),
        paths in proptest::collection::vec(any_path(), 1..20),
    ) {
        let policy = Evaluator::new(&SeatbeltPolicy::new(&bound, None, None).unwrap());
        for path in paths {
            prop_assert!(!policy.allows("file-read-data", &path) || bound.can_read(&path), "read {:?}", path);
            prop_assert!(!policy.allows("file-write-data", &path) || bound.can_write(&path), "write {:?}", path);
        }
    }

    #[test]
    fn nothing_is_moved_with_which_a_denial_would_move(bound in any_bound(0..2)) {
        let policy = Evaluator::new(&SeatbeltPolicy::new(&bound, None, None).unwrap());
        for entry in &bound.entries {
            for path in entry.path.ancestors().filter(|path| path.parent().is_some()) {
                if path != entry.path && entry.access < Access::Write || entry.access == Access::Write && path == entry.path {
                    prop_assert!(!policy.allows("file-write-unlink", path), "move {:?}", path);
                }
            }
        }
        for glob in &bound.globs {
            prop_assert!(!policy.allows("file-write-unlink", &glob.base), "move {:?}", glob.base);
        }
    }
}
