//! From arguments to the one text that Windows passes to a program.
//!
//! There is no list of arguments below the C runtime: a program gets a text and takes it apart itself. Programs follow
//! the rules of Microsoft's C runtime; batch files are run by `cmd.exe`, whose rules are others, and where an argument
//! that is quoted by the wrong rules becomes a command.

use std::fmt;

/// Why arguments cannot be put into a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An argument that no quoting carries to the program unchanged.
    Argument {
        /// Its place in `argv`.
        index: usize,
        why: Why,
    },
    /// The command line is longer than the system, or `cmd.exe`, takes.
    TooLong {
        /// Its length in UTF-16 code units, with the terminator.
        units: usize,
    },
}

/// What is wrong with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Nul,
    /// A quotation mark in the program's own name, which has no escape there.
    QuotedName,
    /// A line break or another control character, at which `cmd.exe` would end the command or the argument.
    ControlInBatch,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nul => "contains a NUL",
            Self::QuotedName => "contains a quotation mark, which the name of a program cannot have",
            Self::ControlInBatch => "contains a control character, which a batch file cannot be given",
        })
    }
}

/// The command line, terminated, for a program that takes it apart as the C runtime does.
///
/// The runtime reads the first argument by other rules than the rest: quotation marks group, and nothing escapes them.
pub(super) fn for_program(argv: &[Vec<u16>]) -> Result<Vec<u16>, Fault> {
    let mut line = Vec::new();
    for (index, arg) in argv.iter().enumerate() {
        refuse_if(arg.contains(&0), index, Why::Nul)?;
        if index == 0 {
            refuse_if(arg.contains(&QUOTE), index, Why::QuotedName)?;
            line.push(QUOTE);
            line.extend_from_slice(arg);
            line.push(QUOTE);
        } else {
            line.push(SPACE);
            push_argument(&mut line, arg);
        }
    }
    finish(line, MAX_UNITS)
}

/// The command line, terminated, that has `cmd.exe` run the batch file `script` with these arguments.
///
/// `cmd.exe` looks for operators such as `&` and `|` outside of quotation marks, and for variables between percent signs
/// everywhere. So each argument is quoted, its own quotation marks are doubled, which leaves the text between them
/// quoted, and each percent sign is kept from starting a variable. What the script itself does with its arguments is
/// its own affair.
pub(super) fn for_batch_file(script: &[u16], args: &[Vec<u16>]) -> Result<Vec<u16>, Fault> {
    // Extensions on, since the protection of percent signs needs them; delayed expansion off, so that `!` is plain; no
    // commands from the registry; and the outer pair of marks is always taken off.
    let mut line: Vec<u16> = "cmd.exe /e:on /v:off /d /s /c \"".encode_utf16().collect();
    refuse_if(script.contains(&QUOTE), 0, Why::QuotedName)?;
    push_batch_argument(&mut line, script, 0)?;
    for (index, arg) in args.iter().enumerate() {
        line.push(SPACE);
        push_batch_argument(&mut line, arg, index + 1)?;
    }
    line.push(QUOTE);
    finish(line, MAX_BATCH_UNITS)
}

/// Quotes by the rules of the C runtime: backslashes are plain unless a quotation mark follows them.
fn push_argument(line: &mut Vec<u16>, arg: &[u16]) {
    let is_plain = |unit: &u16| !matches!(*unit, SPACE | TAB | NEWLINE | VERTICAL_TAB | QUOTE);
    if !arg.is_empty() && arg.iter().all(is_plain) {
        line.extend_from_slice(arg);
        return;
    }
    push_quoted(line, arg, |line| line.extend([BACKSLASH, QUOTE]), |line| line.push(PERCENT));
}

fn push_batch_argument(line: &mut Vec<u16>, arg: &[u16], index: usize) -> Result<(), Fault> {
    refuse_if(arg.contains(&0), index, Why::Nul)?;
    refuse_if(arg.iter().any(|unit| *unit < SPACE && *unit != TAB), index, Why::ControlInBatch)?;
    push_quoted(
        line,
        arg,
        |line| line.extend([QUOTE, QUOTE]),
        // `%%` stays one plain sign and one that opens the expansion of an empty part of the variable `cd`.
        |line| line.extend("%%cd:~,%".encode_utf16()),
    );
    Ok(())
}

/// Puts marks around `arg`. Backslashes before a mark are doubled, as both sets of rules end in the C runtime.
fn push_quoted(line: &mut Vec<u16>, arg: &[u16], quote: impl Fn(&mut Vec<u16>), percent: impl Fn(&mut Vec<u16>)) {
    line.push(QUOTE);
    let mut backslashes = 0;
    for unit in arg {
        match *unit {
            QUOTE => {
                line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
                quote(line);
            }
            PERCENT => percent(line),
            other => line.push(other),
        }
        backslashes = if *unit == BACKSLASH { backslashes + 1 } else { 0 };
    }
    line.extend(std::iter::repeat_n(BACKSLASH, backslashes));
    line.push(QUOTE);
}

fn refuse_if(wrong: bool, index: usize, why: Why) -> Result<(), Fault> {
    if wrong { Err(Fault::Argument { index, why }) } else { Ok(()) }
}

fn finish(mut line: Vec<u16>, max_units: usize) -> Result<Vec<u16>, Fault> {
    line.push(0);
    if line.len() > max_units { Err(Fault::TooLong { units: line.len() }) } else { Ok(line) }
}

const QUOTE: u16 = b'"' as u16;
const BACKSLASH: u16 = b'\\' as u16;
const PERCENT: u16 = b'%' as u16;
const SPACE: u16 = b' ' as u16;
const TAB: u16 = b'\t' as u16;
const NEWLINE: u16 = b'\n' as u16;
const VERTICAL_TAB: u16 = 0x0b;

/// What `CreateProcessW` takes, with the terminator.
const MAX_UNITS: usize = 32_767;
/// What `cmd.exe` takes, with the terminator.
const MAX_BATCH_UNITS: usize = 8_191;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wide(text: &str) -> Vec<u16> {
        text.encode_utf16().collect()
    }

    fn argv(args: &[&str]) -> Vec<Vec<u16>> {
        args.iter().map(|arg| wide(arg)).collect()
    }

    fn text(line: &[u16]) -> String {
        String::from_utf16(line.strip_suffix(&[0]).unwrap()).unwrap()
    }

    fn program(args: &[&str]) -> String {
        text(&for_program(&argv(args)).unwrap())
    }

    fn batch(script: &str, args: &[&str]) -> Result<String, Fault> {
        for_batch_file(&wide(script), &argv(args)).map(|line| text(&line))
    }

    /// Takes a command line apart by the documented rules of Microsoft's C runtime.
    fn parse(line: &str) -> Vec<String> {
        let mut chars = line.chars().peekable();
        let mut args = Vec::new();
        let mut name = String::new();
        let mut quoted = false;
        while let Some(c) = chars.next_if(|c| quoted || !matches!(c, ' ' | '\t')) {
            if c == '"' { quoted = !quoted } else { name.push(c) }
        }
        args.push(name);
        loop {
            while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
            if chars.peek().is_none() {
                return args;
            }
            args.push(parse_one(&mut chars));
        }
    }

    fn parse_one(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> String {
        let mut arg = String::new();
        let mut quoted = false;
        loop {
            let mut backslashes = 0;
            while chars.next_if_eq(&'\\').is_some() {
                backslashes += 1;
            }
            if chars.peek() == Some(&'"') {
                arg.extend(std::iter::repeat_n('\\', backslashes / 2));
                chars.next();
                if backslashes % 2 == 1 || (quoted && chars.next_if_eq(&'"').is_some()) {
                    arg.push('"');
                } else {
                    quoted = !quoted;
                }
                continue;
            }
            arg.extend(std::iter::repeat_n('\\', backslashes));
            match chars.next_if(|c| quoted || !matches!(c, ' ' | '\t')) {
                Some(c) => arg.push(c),
                None => return arg,
            }
        }
    }

    /// What a batch file's program gets if the script passes its arguments on, or what `cmd.exe` would have taken for
    /// more than text.
    fn through_cmd(line: &str) -> Result<Vec<String>, String> {
        let command = line.strip_prefix("cmd.exe /e:on /v:off /d /s /c \"").unwrap().strip_suffix('"').unwrap();
        let mut expanded = String::new();
        let mut rest = command;
        while let Some(at) = rest.find('%') {
            expanded.push_str(&rest[..at]);
            // In a command that is no batch file, a sign that no variable follows is plain.
            match rest[at..].strip_prefix("%%cd:~,%") {
                Some(after) => {
                    expanded.push('%');
                    rest = after;
                }
                None => return Err(format!("a variable at {}", &rest[at..])),
            }
        }
        expanded.push_str(rest);
        let mut quoted = false;
        for c in expanded.chars() {
            match c {
                '"' => quoted = !quoted,
                '&' | '|' | '<' | '>' | '^' | '(' | ')' | ',' | ';' | '=' | '\r' | '\n' if !quoted => {
                    return Err(format!("an operator {c} in {expanded}"));
                }
                _ => {}
            }
        }
        Ok(parse(&expanded))
    }

    #[test]
    fn plain_arguments_stay_plain() {
        assert_eq!(program(&["a.exe", "b", r"c\d", "--x=%y%&z"]), r#""a.exe" b c\d --x=%y%&z"#);
    }

    #[test]
    fn the_documented_examples_are_quoted_as_documented() {
        for (arg, quoted) in [
            ("", r#""""#),
            ("a b", r#""a b""#),
            ("a\tb", "\"a\tb\""),
            (r#"a"b"#, r#""a\"b""#),
            (r#"a\"b"#, r#""a\\\"b""#),
            (r"a b\", r#""a b\\""#),
            (r"a\\b", r"a\\b"),
            (r"a\\b c", r#""a\\b c""#),
        ] {
            assert_eq!(program(&["p", arg]), format!("\"p\" {quoted}"), "{arg}");
        }
    }

    #[test]
    fn the_name_is_read_by_its_own_rules() {
        assert_eq!(parse(&program(&[r"C:\a b\", "x"])), [r"C:\a b\", "x"]);
        assert_eq!(
            for_program(&argv(&[r#"a"b"#])),
            Err(Fault::Argument { index: 0, why: Why::QuotedName }),
            "a mark in the name cannot be escaped"
        );
        assert_eq!(parse(&program(&["", "x"])), ["", "x"]);
    }

    #[test]
    fn a_nul_is_refused_and_named() {
        assert_eq!(for_program(&argv(&["p", "a", "b\0c"])), Err(Fault::Argument { index: 2, why: Why::Nul }));
        assert_eq!(batch("x.bat", &["b\0c"]), Err(Fault::Argument { index: 1, why: Why::Nul }));
    }

    #[test]
    fn a_command_line_has_the_systems_longest_length_and_no_more() {
        // Two marks around the name, a space, the terminator.
        let fits = "x".repeat(MAX_UNITS - 5);
        assert_eq!(for_program(&argv(&["p", &fits])).unwrap().len(), MAX_UNITS);
        assert_eq!(for_program(&argv(&["p", &format!("{fits}x")])), Err(Fault::TooLong { units: MAX_UNITS + 1 }));
    }

    #[test]
    fn a_batch_file_has_the_shorter_length_of_its_interpreter() {
        let long = "x".repeat(MAX_BATCH_UNITS);
        assert!(matches!(batch("x.bat", &[&long]), Err(Fault::TooLong { .. })));
        assert!(batch("x.bat", &[&long[..8_000]]).is_ok());
    }

    #[test]
    fn a_batch_file_without_arguments_is_quoted_twice() {
        assert_eq!(batch(r"C:\a b\x.cmd", &[]).unwrap(), r#"cmd.exe /e:on /v:off /d /s /c ""C:\a b\x.cmd"""#);
    }

    #[test]
    fn known_injections_reach_a_batch_file_as_text() {
        for arg in [
            "\"&calc.exe",
            "\"&calc.exe&\"",
            "%CMDCMDLINE:~-1%&calc.exe",
            "%PATH%",
            "100%",
            "%",
            "%%",
            "a^b",
            "a\\\"b",
            "back\\",
            "a|b",
            "!PATH!",
            "",
        ] {
            let line = batch("x.bat", &[arg, "last"]).unwrap();
            assert_eq!(through_cmd(&line), Ok(vec!["x.bat".into(), arg.into(), "last".into()]), "{line}");
        }
    }

    #[test]
    fn control_characters_do_not_reach_a_batch_file() {
        for arg in ["a\nb", "a\rb", "\u{1a}", "\u{1}"] {
            let refused = Err(Fault::Argument { index: 1, why: Why::ControlInBatch });
            assert_eq!(batch("x.bat", &[arg]), refused, "{arg:?}");
        }
        assert!(batch("x.bat", &["a\tb"]).is_ok());
    }

    #[test]
    fn a_percent_sign_in_the_path_of_a_script_is_plain() {
        let line = batch(r"C:\100%\x.bat", &["a"]).unwrap();
        assert_eq!(through_cmd(&line).unwrap()[0], r"C:\100%\x.bat");
    }

    proptest! {
        #[test]
        fn a_program_gets_its_arguments_back(
            name in r"[^\x00\x22]{0,20}",
            args in prop::collection::vec(r#"([\\" \t%&a-cé]|[^\x00]){0,20}"#, 0..5),
        ) {
            let mut all = vec![name];
            all.extend(args);
            let refs: Vec<&str> = all.iter().map(String::as_str).collect();
            prop_assert_eq!(parse(&program(&refs)), all);
        }

        #[test]
        fn a_batch_file_gets_text_whatever_it_is_given(
            args in prop::collection::vec(r#"([\\" \t%&|<>^()!cd:~,a-c]|[^\x00-\x1f]){0,20}"#, 0..5),
        ) {
            let refs: Vec<&str> = args.iter().map(String::as_str).collect();
            let parsed = through_cmd(&batch("x.bat", &refs).unwrap()).unwrap();
            prop_assert_eq!(&parsed[1..], &args[..]);
        }
    }
}
