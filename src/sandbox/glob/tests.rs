use std::path::Component;

use super::*;

fn alternatives(text: &str) -> Vec<Alternative> {
    parse(text, Anchor::Cwd, false).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The longest match of a path, in components.
fn longest(text: &str, path: &str) -> Option<usize> {
    let names: Vec<_> = Path::new(path).components().map(Component::as_os_str).collect();
    let matches = alternatives(text).into_iter().filter_map(|alternative| {
        let fixed = alternative.fixed.len();
        let same = names.iter().take(fixed).eq(alternative.fixed.iter().map(OsStr::new).collect::<Vec<_>>().iter());
        same.then(|| alternative.pattern.longest_match(names.iter().skip(fixed).copied()).map(|names| names + fixed))?
    });
    matches.max()
}

#[test]
fn patterns_match_names_and_all_below_them() {
    for (pattern, path, expected) in [
        ("*.pem", "a.pem", Some(1)),
        ("*.pem", ".pem", Some(1)),
        ("*.pem", "a.pem/b/c", Some(1)),
        ("*.pem", "d/a.pem", None),
        ("*.pem", "a.pemx", None),
        ("**/*.pem", "a.pem", Some(1)),
        ("**/*.pem", "d/e/a.pem", Some(3)),
        ("**/*.pem", "d/a.pem/x/b.pem/y", Some(4)),
        ("d/**", "d", None),
        ("d/**", "d/e/f", Some(3)),
        ("d/**/f", "d/f", Some(2)),
        ("d/**/f", "d/a/b/f/g", Some(4)),
        ("d/*/f", "d/a/b/f", None),
        ("**", "a/b", Some(2)),
        ("**/**/x*", "a/xy", Some(2)),
        ("?", "é", Some(1)),
        ("?", "ab", None),
        ("a?c", "a/c", None),
        ("[a-c]x", "bx", Some(1)),
        ("[!a-c]x", "bx", None),
        ("[^a-c]x", "dx", Some(1)),
        ("[]]*", "]a", Some(1)),
        ("[a-]*", "-", Some(1)),
        ("[\\]]*", "]", Some(1)),
        ("\\*x*", "*xy", Some(1)),
        ("\\*x*", "yxy", None),
        ("*.{pem,key}", "a.key", Some(1)),
        ("x/{*.pem,key}", "x/key/y", Some(2)),
        ("x/{*.pem,key}", "x", None),
        ("{a,b/c}/*", "b/c/d", Some(3)),
        ("{a,{b,c}d}*", "cd", Some(1)),
        ("*[{]*", "a{b", Some(1)),
        ("./a//*", "a/b", Some(2)),
        ("*a*b*c", "xaybzbc", Some(1)),
        ("*a*b*c", "xaybzcb", None),
    ] {
        assert_eq!(longest(pattern, path), expected, "{pattern} on {path}");
    }
}

#[test]
fn literal_beginnings_stand_apart() {
    let [only] = &*alternatives("../a/\\[b\\]/*/c") else { panic!("one") };
    assert_eq!(only.fixed, ["..", "a", "[b]"]);
    let both: Vec<_> = alternatives("{a,b}/*").into_iter().map(|alternative| alternative.fixed).collect();
    assert_eq!(both, [["a"], ["b"]]);
    let literal: Vec<_> = alternatives("{a/b,c*}").into_iter().map(|alternative| alternative.fixed).collect();
    assert_eq!(literal, [vec!["a"], vec![]]);
}

#[test]
fn what_cannot_be_meant_is_refused_with_its_reason() {
    let long = "*".repeat(MAX_PATTERN_BYTES + 1);
    let many = "{a,b}".repeat(7) + "*";
    for (pattern, reason) in [
        ("", "no wildcard"),
        ("a/b", "no wildcard"),
        ("{a}", "no wildcard"),
        ("{a*,..}", "no wildcard"),
        ("{a*,}", "no wildcard"),
        ("[a", "no valid"),
        ("[]", "no valid"),
        ("[z-a]*", "no valid"),
        ("[[:alpha:]]", "no valid"),
        ("[a/b]*", "no valid"),
        ("{a*", "no `}`"),
        ("a}*", "no `{`"),
        ("a*\\", "backslash"),
        ("a**b", "stand alone"),
        ("*/../x", "after a wildcard"),
        ("*\0", "NUL"),
        ("{/a*,b}", "`/a*`, which begins elsewhere"),
        ("{~/a*,b}", "`~/a*`, which begins elsewhere"),
        ("{,a}/b*", "`/b*`, which begins elsewhere"),
        ("{{b,/a},c}*", "`/a*`, which begins elsewhere"),
        ("~{/a,b}*", "`~/a*`, which begins elsewhere"),
        ("{C:/a,b}*", "`C:/a*`, which begins elsewhere"),
        (&long, "longer"),
        (&many, "alternatives"),
    ] {
        let error = parse(pattern, Anchor::Cwd, false).expect_err(pattern);
        assert!(error.contains(reason), "{pattern}: {error}");
    }
}

#[cfg(unix)]
#[test]
fn names_that_are_no_text_match_by_their_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let name = OsStr::from_bytes(b"a\xff.pem");
    let pattern = |text| alternatives(text).remove(0).pattern;
    assert_eq!(pattern("*.pem").longest_match([name].into_iter()), Some(1));
    assert_eq!(pattern("a?.pem").longest_match([name].into_iter()), Some(1));
    assert_eq!(pattern("a??.pem").longest_match([name].into_iter()), None);
    assert_eq!(pattern("a[!b].pem").longest_match([name].into_iter()), Some(1));
}

#[test]
fn what_a_pattern_is_relative_to_is_its_beginning() {
    for (pattern, expected) in [
        ("*.pem", (Anchor::Cwd, "*.pem")),
        ("~/x/*", (Anchor::Home, "x/*")),
        ("~x/*", (Anchor::Cwd, "~x/*")),
        ("/x/*", (Anchor::Absolute, "/x/*")),
        ("codex-project-roots://x/*", (Anchor::Roots, "x/*")),
    ] {
        assert_eq!(anchor(pattern, false), expected);
        assert_eq!(anchor(pattern, true), expected);
    }
    // What a backslash is differs.
    for pattern in ["C:\\x\\*", "\\[x\\]*"] {
        assert_eq!(anchor(pattern, true).0, Anchor::Absolute);
        assert_eq!(anchor(pattern, false).0, Anchor::Cwd);
    }
    let [windows] = &*parse("a\\*\\b", Anchor::Cwd, true).unwrap() else { panic!("one") };
    assert_eq!(windows.fixed, ["a"]);
}

#[test]
fn regular_expressions_say_the_same() {
    for (pattern, expected) in [
        ("*.pem", r"[^/]*\.pem(/.*)?$"),
        ("**/a?c", r"(.*/)?a[^/]c(/.*)?$"),
        ("*/**", r"[^/]*/(.*/)?[^/]*(/.*)?$"),
        ("[a-c]*", r"[a-c][^/]*(/.*)?$"),
        ("[!a]*", r"[^/a][^/]*(/.*)?$"),
        ("[]^-]*", r"[]^-][^/]*(/.*)?$"),
        ("[!]]*", r"[^]/][^/]*(/.*)?$"),
        ("*(x)+", r"[^/]*\(x\)\+(/.*)?$"),
    ] {
        assert_eq!(alternatives(pattern).remove(0).pattern.to_regex(), expected, "{pattern}");
    }
}
