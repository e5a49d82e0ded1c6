use super::*;

fn check(text: &str) -> Result<Envelope<'_>, DecodeError> {
    scan(text, &MessageLimits::default())
}

/// A message with `value` in a member that means nothing.
fn with_value(value: &str) -> String {
    format!(r#"{{"id":2,"method":"m","x":{value}}}"#)
}

#[test]
fn the_members_of_the_envelope_are_found_wherever_they_stand() {
    let text = " {\"params\" : [1, {\"id\":5}] ,\r\n\t\"i\\u0064\":\"a\", \"other\":{\"method\":1},\"method\":\"m\"} ";
    let envelope = check(text).unwrap();
    assert_eq!(
        envelope,
        Envelope { id: Some("\"a\""), method: Some("\"m\""), params: Some("[1, {\"id\":5}]"), ..Envelope::default() }
    );
    let envelope = check(r#"{"result":null,"error":{},"trace":-1e5}"#).unwrap();
    assert_eq!((envelope.result, envelope.error, envelope.trace), (Some("null"), Some("{}"), Some("-1e5")));
}

#[test]
fn every_value_of_the_grammar_passes() {
    for value in [
        "1e999",
        "-1e999",
        "-0",
        "0.5",
        "10E+2",
        "1e-2",
        "12345678901234567890123456789012345678901234567890",
        "true",
        "false",
        "null",
        "[]",
        "{}",
        "[ ]",
        "{ }",
        "[[],[{}]]",
        r#""""#,
        r#""\ud83d\ude00""#,
        "\"\u{7f}\"",
        r#""\"\\\/\b\f\n\r\t""#,
        "\"\u{e9}\u{1F600}\"",
        r#"{"":0,"a":{"a":{"a":[]}}}"#,
    ] {
        assert!(check(&with_value(value)).is_ok(), "{value}");
    }
}

#[test]
fn everything_outside_of_the_grammar_is_refused() {
    for value in [
        "",
        "01",
        "-",
        "-a",
        "+1",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x1",
        "1 2",
        "nul",
        "tru e",
        "True",
        "NaN",
        "'a'",
        "[1,]",
        "[,]",
        "[1 2]",
        "{,}",
        r#"{"a":1,}"#,
        r#"{"a"}"#,
        r#"{"a" 1}"#,
        "{1:2}",
        "{a:1}",
        r#"{"a":1 "b":2}"#,
        "[1}",
        r#"{"a":1]"#,
        r#"""#,
        r#""\x""#,
        r#""\u12""#,
        r#""\u00zz""#,
        r#""\ud800""#,
        r#""\ud800\ud800""#,
        r#""\ud800a""#,
        r#""\udc00""#,
        r#""\u+123""#,
        "\"a\tb\"",
        "\"\u{0}\"",
        "\"\n\"",
        "/* */1",
        "\u{a0}1",
    ] {
        assert!(check(&with_value(value)).is_err(), "{value}");
        assert!(check(&with_value(&format!("[{value}]"))).is_err() || value.is_empty(), "[{value}]");
    }
}

#[test]
fn only_one_object_and_nothing_else_is_a_message() {
    for text in ["5", "\"x\"", "null", "[]", "[{}]", " [1] "] {
        assert_eq!(check(text), Err(DecodeError::NotAnObject), "{text}");
    }
    for text in
        ["", " ", "{", "{\"a\":", "{\"a\"", "{\"a\":1", "{\"a\":[", "\u{feff}{}", "}", "{}}", "{} x", "{}{}", "{},"]
    {
        assert!(matches!(check(text), Err(DecodeError::Syntax { .. })), "{text}");
    }
    assert!(check(" \t\r\n{} \t\r\n").is_ok());
}

#[test]
fn a_key_that_stands_twice_is_refused_at_any_depth_and_in_any_spelling() {
    for value in [
        r#"1,"x":2"#,
        r#"1,"\u0078":2"#,
        r#"{"a":1,"a":2}"#,
        r#"{"a":{"b":1,"c":0,"b":2}}"#,
        r#"[[[{"b":[],"b":{}}]]]"#,
        r#"{"":1,"":2}"#,
        r#"{"\ud83d\ude00":1,"😀":2}"#,
        r#"{"\n":1,"\u000a":2}"#,
    ] {
        assert!(matches!(check(&with_value(value)), Err(DecodeError::DuplicateKey { .. })), "{value}");
    }
    for value in [r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}"#, r#"{"a":1,"A":2,"a ":3}"#, r#"{"ab":1,"a":2,"":3}"#] {
        assert!(check(&with_value(value)).is_ok(), "{value}");
    }
}

#[test]
fn a_key_that_stands_twice_is_found_among_any_number_of_keys() {
    for count in [1, 2, 23, 24, 25, 26, 27, 100, 3_000] {
        let members: Vec<String> = (0..count).map(|n| format!(r#""key \t {n}":{{"a":{n}}}"#)).collect();
        assert!(check(&with_value(&format!("{{{}}}", members.join(",")))).is_ok(), "{count}");
        for twice in [0, count / 2, count - 1] {
            let text = with_value(&format!(r#"{{{},"key \u0009 {twice}":0}}"#, members.join(",")));
            let Err(DecodeError::DuplicateKey { key, .. }) = check(&text) else { panic!("{count} {twice}") };
            assert_eq!(key, format!("key \t {twice}"));
        }
    }
}

#[test]
fn two_hundred_thousand_keys_are_checked_in_one_go() {
    // Quadratic comparison would take many minutes.
    let members: Vec<String> = (0..200_000).map(|n| format!(r#""{n:07}":0"#)).collect();
    assert!(check(&with_value(&format!("{{{}}}", members.join(",")))).is_ok());
    let text = with_value(&format!(r#"{{{},"0000000":0}}"#, members.join(",")));
    assert!(matches!(check(&text), Err(DecodeError::DuplicateKey { key, .. }) if key == "0000000"));
}

#[test]
fn values_are_counted_as_the_reference_counts_them() {
    // The message, its id, its method and the array are four.
    let array = |count: usize| with_value(&format!("[{}]", vec!["1"; count].join(",")));
    let limit = MessageLimits::default().max_json_values;
    assert!(check(&array(limit - 4)).is_ok());
    assert_eq!(check(&array(limit - 3)), Err(DecodeError::TooManyValues { limit }));
    // Keys do not count: here are the message, id, method, two containers, and two scalars.
    let text = with_value(r#"{"a":[null],"b":true}"#);
    let limits = |max_json_values| MessageLimits { max_json_values, ..MessageLimits::default() };
    assert!(scan(&text, &limits(7)).is_ok());
    assert_eq!(scan(&text, &limits(6)), Err(DecodeError::TooManyValues { limit: 6 }));
}

#[test]
fn nesting_is_counted_with_the_message_itself() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let per_repeat = open.matches(['[', '{']).count();
        let nested = |depth: usize| {
            let repeats = depth / per_repeat;
            let inner = if per_repeat * repeats < depth { "[]" } else { "1" };
            with_value(&format!("{}{inner}{}", open.repeat(repeats), close.repeat(repeats)))
        };
        assert!(check(&nested(126)).is_ok(), "{open}");
        assert_eq!(check(&nested(127)), Err(DecodeError::TooDeep { limit: 127 }), "{open}");
        assert_eq!(check(&nested(100_000)), Err(DecodeError::TooDeep { limit: 127 }), "{open}");
    }
    let limits = MessageLimits { max_json_depth: 1_000_000, max_json_values: usize::MAX, ..MessageLimits::default() };
    let deep = with_value(&format!("{}{}", "[".repeat(900_000), "]".repeat(900_000)));
    assert!(scan(&deep, &limits).is_ok(), "depth takes no stack");
}

#[test]
fn special_bytes_are_found_at_every_offset() {
    for length in 0..200 {
        for special in ["\"", "\\", "\u{1f}", "\n", "\u{0}"] {
            let text = format!("{}{special}{}", "é".repeat(length), "x".repeat(70));
            assert_eq!(plain_length(text.as_bytes()), 2 * length, "{special:?} {length}");
        }
        assert_eq!(plain_length("\u{7f}".repeat(length).as_bytes()), length);
    }
}

#[test]
fn escapes_stand_for_what_json_says() {
    for (raw, text) in [
        ("", ""),
        ("plain é", "plain é"),
        (r"\u0061", "a"),
        (r#"a\"\\\/\b\f\n\r\tz"#, "a\"\\/\u{8}\u{c}\n\r\tz"),
        (r"\ud83d\ude00\uD83D\uDE00", "😀😀"),
        (r"\u0000\uffff\u00E9", "\u{0}\u{ffff}é"),
    ] {
        assert_eq!(unescape(raw).as_deref(), Some(text), "{raw}");
        assert_eq!(serde_json::from_str::<String>(&format!("\"{raw}\"")).unwrap(), text, "{raw}");
    }
}
