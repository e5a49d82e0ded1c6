use proptest::prelude::*;

use super::*;

fn canonical(text: &str) -> String {
    PathUri::parse(text).unwrap_or_else(|error| panic!("{text:?}: {error}")).to_string()
}

fn rejection(text: &str) -> String {
    PathUri::parse(text).map_or_else(|error| error.to_string(), |uri| panic!("{text:?} became {uri}"))
}

fn posix(path: &[u8]) -> PathUri {
    PathUri::from_native(&NativePath::Posix(path.into())).unwrap()
}

fn windows(path: &str) -> PathUri {
    PathUri::from_native_text(path, PathConvention::Windows).unwrap()
}

#[test]
fn accepted_spellings_have_one_canonical_form() {
    for (input, expected) in [
        ("FILE:///tmp", "file:///tmp"),
        ("file:/tmp", "file:///tmp"),
        ("file:tmp", "file:///tmp"),
        ("file://localhost/tmp", "file:///tmp"),
        ("file://LocalHost/tmp", "file:///tmp"),
        ("file://", "file:///"),
        ("file:", "file:///"),
        (" \tfile:///t\nm\tp ", "file:///tmp"),
        ("file:///a/./b/../c/%2e/%2e%2E/d", "file:///a/d"),
        ("file:///../../tmp/../..", "file:///"),
        ("file:\\\\\\tmp\\a", "file:///tmp/a"),
        ("file:\\\\server\\share", "file://server/share"),
        ("file:///a//b", "file:///a//b"),
        ("file:///a/", "file:///a/"),
        ("file:///c:/x", "file:///C:/x"),
        ("file:///c%3a/x", "file:///C%3a/x"),
        ("file:////C:/x", "file:///C:/x"),
        ("file:///c:/../../x", "file:///C:/x"),
        ("file://server/c:/x", "file:///C:/x"),
        ("file://SERVER/Share", "file://server/Share"),
        ("file://b\u{fc}cher/x", "file://xn--bcher-kva/x"),
        ("file:///a b/\u{e9}", "file:///a%20b/%C3%A9"),
        ("file:///%zz/%", "file:///%zz/%"),
        ("file:///a%2Fb/../c", "file:///c"),
        ("file:////%00/bad/path/L2EAYg", "file:///%00/bad/path/L2EAYg"),
    ] {
        assert_eq!(canonical(input), expected, "{input:?}");
        assert_eq!(canonical(expected), expected, "the canonical form is stable");
    }
}

#[test]
fn what_is_no_path_uri_is_rejected_with_its_reason() {
    const RELATIVE: &str = "invalid URI: relative URL without a base";
    for (input, expected) in [
        ("", RELATIVE),
        ("file://host//a:", "invalid URI: it has a server and a drive"),
        ("/tmp", RELATIVE),
        ("~/x", RELATIVE),
        ("relative", RELATIVE),
        ("C:\\x", "unsupported path URI scheme `c`"),
        ("http://x/y", "unsupported path URI scheme `http`"),
        ("untitled:a", "unsupported path URI scheme `untitled`"),
        ("file:///tmp?", "query parameters are not allowed in path URIs"),
        ("file:///tmp?a#b", "query parameters are not allowed in path URIs"),
        ("file:///tmp#", "fragments are not allowed in path URIs"),
        ("file://h:80/x", "invalid URI: invalid international domain name"),
        ("file://u:p@h/x", "invalid URI: invalid international domain name"),
    ] {
        assert_eq!(rejection(input), expected, "{input:?}");
    }
    for (input, uri) in [
        ("file:///a%00b", "file:///a%00b"),
        ("file:///a\0b", "file:///a%00b"),
        ("file://h/a%00", "file://h/a%00"),
        ("file:///%00/bad/path/", "file:///%00/bad/path/"),
        ("file:///%00/bad/path/!", "file:///%00/bad/path/!"),
        ("file:///%00/bad/path/L2EAYg=", "file:///%00/bad/path/L2EAYg="),
        ("file:///%00/bad/path/L2EAYh", "file:///%00/bad/path/L2EAYh"),
        ("file:///%00/bad/path/L2EAYg/", "file:///%00/bad/path/L2EAYg/"),
        ("file:///%00/bad/path/L2E%41Yg", "file:///%00/bad/path/L2E%41Yg"),
        ("file:///x/%00/bad/path/L2EAYg", "file:///x/%00/bad/path/L2EAYg"),
        ("file://h/%00/bad/path/L2EAYg", "file://h/%00/bad/path/L2EAYg"),
    ] {
        assert_eq!(rejection(input), format!("'{uri}' is invalid on '{}'", std::env::consts::OS), "{input:?}");
    }
}

#[test]
fn the_form_is_known_without_a_host() {
    use PathConvention::{Posix, Windows};
    for (uri, form, convention) in [
        ("file:///tmp", PathForm::Posix, Some(Posix)),
        ("file:///", PathForm::Posix, Some(Posix)),
        ("file:///%43:/x", PathForm::Posix, Some(Posix)),
        ("file:///%43%3A/x", PathForm::Posix, Some(Posix)),
        ("file:///C|/x", PathForm::Posix, Some(Posix)),
        ("file:///C%7C/x", PathForm::Posix, Some(Posix)),
        ("file:///CC:/x", PathForm::Posix, Some(Posix)),
        ("file:///C:x", PathForm::Posix, Some(Posix)),
        ("file:///1:/x", PathForm::Posix, Some(Posix)),
        ("file:///x/C:/", PathForm::Posix, Some(Posix)),
        ("file:///C:", PathForm::WindowsDrive, Some(Windows)),
        ("file:///c%3A/x", PathForm::WindowsDrive, Some(Windows)),
        ("file:////c%3a/x", PathForm::WindowsDrive, Some(Windows)),
        ("file://localhost/C:/x", PathForm::WindowsDrive, Some(Windows)),
        ("file://server/share", PathForm::WindowsUnc, Some(Windows)),
        ("file://server", PathForm::WindowsUnc, Some(Windows)),
        ("file://127.0.0.1/x", PathForm::WindowsUnc, Some(Windows)),
        ("file:///%00/bad/path/L2EAYg", PathForm::Opaque(Some(Posix)), Some(Posix)),
        ("file:///%00/bad/path/QwA6AFwA2AA", PathForm::Opaque(Some(Windows)), Some(Windows)),
        ("file:///%00/bad/path/XABc", PathForm::Opaque(None), None),
    ] {
        let uri = PathUri::parse(uri).unwrap();
        assert_eq!((uri.form(), uri.convention()), (form, convention), "{uri}");
    }
}

#[test]
fn a_uri_becomes_the_native_path_of_its_convention_only() {
    for (uri, expected) in [
        ("file:///", "/"),
        ("file:///tmp/a%20b/", "/tmp/a b"),
        ("file:///a//b", "/a/b"),
        ("file:///a%2Fb", "/a/b"),
        ("file:///%zz%", "/%zz%"),
        ("file:///%43:/x", "/C:/x"),
    ] {
        let uri = PathUri::parse(uri).unwrap();
        assert_eq!(uri.to_native("linux").unwrap(), NativePath::Posix(expected.into()), "{uri}");
        assert_eq!(uri.to_native("windows").unwrap_err().to_string(), format!("'{uri}' is invalid on 'windows'"));
    }
    for (uri, expected) in [
        ("file:///C:/a/b", r"C:\a\b"),
        ("file:///C:", r"C:\"),
        ("file:///C%3A/a//b/", r"C:\a\b"),
        ("file://server/share/a", r"\\server\share\a"),
        ("file://server/share", r"\\server\share"),
    ] {
        let uri = PathUri::parse(uri).unwrap();
        let native = NativePath::from_text(expected, PathConvention::Windows);
        assert_eq!(uri.to_native("windows").unwrap(), native, "{uri}");
        assert_eq!(uri.to_native("macos").unwrap_err().to_string(), format!("'{uri}' is invalid on 'macos'"));
    }
    assert_eq!(PathUri::parse("file:///%FF").unwrap().to_native("linux").unwrap(), NativePath::Posix(b"/\xff".into()));
    for unusable in ["file://server", "file://server/", "file:///C:/a%2Fb", "file:///C:/a%5Cb", "file:///C:/%FF"] {
        assert!(PathUri::parse(unusable).unwrap().to_native("windows").is_err(), "{unusable}");
    }
}

#[test]
fn an_opaque_uri_is_usable_only_if_no_plain_one_would_do() {
    let opaque = PathUri::parse("file:///%00/bad/path/L2EAYg").unwrap();
    assert_eq!(opaque.to_native("linux").unwrap(), NativePath::Posix(b"/a\0b".into()));
    for unusable in ["L3RtcA", "dG1wAA", "XABc", "QwA6AFwA2AA"] {
        let uri = PathUri::parse(&format!("file:///%00/bad/path/{unusable}")).unwrap();
        assert!(uri.to_native("linux").is_err(), "{unusable}");
    }
}

#[test]
fn a_native_path_becomes_a_canonical_uri() {
    for (path, uri) in [
        (&b"/"[..], "file:///"),
        (b"//a/./b//../c/", "file:///a/c"),
        (b"/..", "file:///"),
        (b"/ \"#%<>?\\`{}", "file:///%20%22%23%25%3C%3E%3F%5C%60%7B%7D"),
        (b"/!$&'()*+,-.:;=@[]^_|~", "file:///!$&'()*+,-.:;=@[]^_|~"),
        (b"/\x01\x7f\xff\xc3\xa9", "file:///%01%7F%FF%C3%A9"),
        (b"/C:/x", "file:///%00/bad/path/L0M6L3g"),
        (b"/a\0b", "file:///%00/bad/path/L2EAYg"),
    ] {
        assert_eq!(posix(path).as_str(), uri);
    }
    for (path, uri) in [
        (r"c:\", "file:///C:/"),
        (r"C:\a b\..\c\", "file:///C:/c"),
        (r"C:\..\..\x", "file:///C:/x"),
        ("C:/a/b", "file:///C:/a/b"),
        (r"\\Server\Share\..\..\a", "file://server/Share/a"),
        (r"\\?\C:\a", "file:///C:/a"),
        (r"\\?\C:\", "file:///C:/"),
        (r"\\?\UNC\server\share\a", "file://server/share/a"),
    ] {
        // The root of a drive has no name after it.
        assert_eq!(windows(path).as_str().trim_end_matches('/'), uri.trim_end_matches('/'), "{path}");
    }
    for opaque in [
        r"\\.\pipe\x",
        r"\\?\Volume{1}\x",
        r"\\?\C:",
        r"\\?\C:\a/b",
        r"\\?\C:\a\..\b",
        r"\\server",
        r"\\localhost\share\x",
        r"\\127.1\share\x",
        r"\\a b\share\x",
        "C:\\a\0b",
    ] {
        let uri = windows(opaque);
        assert_eq!(uri.form(), PathForm::Opaque(Some(PathConvention::Windows)), "{opaque} became {uri}");
    }
    let surrogate = NativePath::Windows(vec![0x43, 0x3a, 0x5c, 0xd800]);
    let uri = PathUri::from_native(&surrogate).unwrap();
    assert_eq!(uri.as_str(), "file:///%00/bad/path/QwA6AFwAANg");
    assert_eq!(uri.to_native("windows").unwrap(), surrogate);
}

#[test]
fn a_relative_native_path_is_refused() {
    for path in ["", "a", "./a", "C:\\a"] {
        let error = PathUri::from_native_text(path, PathConvention::Posix).unwrap_err();
        assert_eq!(error, PathUriError::NotAbsolute(path.into()));
    }
    for path in ["", "a", "C:", "C:a", "\\a", "/a"] {
        let error = PathUri::from_native_text(path, PathConvention::Windows).unwrap_err();
        assert_eq!(error, PathUriError::NotAbsolute(path.into()));
    }
}

#[test]
fn parents_end_at_the_root_the_drive_and_the_share() {
    for (uri, parent, name) in [
        ("file:///a/b/", Some("file:///a"), Some("b")),
        ("file:///a%20b", Some("file:///"), Some("a b")),
        ("file:///", None, None),
        ("file:///C:/a", Some("file:///C:"), Some("a")),
        ("file:///C:/", None, None),
        ("file://server/share/a", Some("file://server/share"), Some("a")),
        ("file://server/share", None, None),
        ("file://server/", None, None),
        ("file:///a%2Fb", None, None),
        ("file:///%00/bad/path/L2EAYg", None, None),
    ] {
        let uri = PathUri::parse(uri).unwrap();
        assert_eq!(uri.parent().as_ref().map(PathUri::as_str), parent, "{uri}");
        assert_eq!(uri.file_name().as_deref(), name.map(str::as_bytes), "{uri}");
    }
}

#[test]
fn joins_follow_the_convention_of_the_base() {
    for (base, text, expected) in [
        ("file:///a", "b/c", Some("file:///a/b/c")),
        ("file:///a/", "../../../b", Some("file:///b")),
        ("file:///a", "/b", Some("file:///b")),
        ("file:///a", "b\\c %?#", Some("file:///a/b%5Cc%20%25%3F%23")),
        ("file:///a", "", Some("file:///a")),
        ("file:///", "C:/x", None),
        ("file:///a", "\0", None),
        ("file:///C:/a", "b\\c/d", Some("file:///C:/a/b/c/d")),
        ("file:///C:/a", "..\\..\\b", Some("file:///C:/b")),
        ("file:///C:/a", "\\b", Some("file:///C:/b")),
        ("file:///C:/a", "D:\\b", Some("file:///D:/b")),
        ("file:///C:/a", "D:b", None),
        ("file:///C:/a", "\\\\s\\h\\b", Some("file://s/h/b")),
        ("file://s/h/a", "\\b", Some("file://s/h/b")),
        ("file://s/h/a", "..\\..\\..\\b", Some("file://s/h/b")),
        ("file:///a%2Fb", "c", None),
        ("file:///%00/bad/path/L2EAYg", "c", None),
    ] {
        let joined = PathUri::parse(base).unwrap().join(text);
        assert_eq!(joined.as_ref().ok().map(PathUri::as_str), expected, "{base} + {text:?}: {joined:?}");
    }
}

#[test]
fn a_prefix_is_the_same_authority_and_whole_names() {
    for (path, base, expected) in [
        ("file:///a/b", "file:///a", true),
        ("file:///a/b", "file:///a/", true),
        ("file:///a/%62", "file:///a/b", true),
        ("file:///ab", "file:///a", false),
        ("file:///a", "file:///", true),
        ("file:///a", "file:///a/b", false),
        ("file:///C:/a", "file:///", false),
        ("file:///C:/a", "file:///C%3A", true),
        ("file:///D:/a", "file:///C:/", false),
        ("file://s/h/a", "file://s/h", true),
        ("file://t/h/a", "file://s/h", false),
        ("file:///a%2Fb", "file:///a", false),
        ("file:///a/b", "file:///a%2Fb", false),
        ("file:///%00/bad/path/L2EAYg", "file:///", false),
        ("file:///%00/bad/path/L2EAYg", "file:///%00/bad/path/L2EAYg", true),
    ] {
        let found = PathUri::parse(path).unwrap().starts_with(&PathUri::parse(base).unwrap());
        assert_eq!(found, expected, "{path} in {base}");
    }
}

#[test]
fn the_wire_form_is_the_canonical_text() {
    let uri: PathUri = serde_json::from_str("\"FILE:/tmp/./a b\"").unwrap();
    assert_eq!(serde_json::to_string(&uri).unwrap(), "\"file:///tmp/a%20b\"");
    let error = serde_json::from_str::<PathUri>("5").unwrap_err().to_string();
    assert!(error.starts_with("invalid type: integer `5`, expected a string"), "{error}");
    let error = serde_json::from_str::<PathUri>("\"/tmp\"").unwrap_err().to_string();
    assert!(error.starts_with("invalid URI: relative URL without a base"), "{error}");
}

#[test]
fn a_path_of_this_host_comes_back_unchanged() {
    let dir = std::env::temp_dir();
    let uri = PathUri::from_host_native_path(&dir).unwrap();
    assert_eq!(uri.to_host_native_path().unwrap(), dir);
    assert_eq!(uri.convention(), Some(PathConvention::HOST));
    assert!(PathUri::from_host_native_path("relative").is_err());
}

/// Names that no convention treats specially.
fn posix_name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>().prop_filter("separator", |byte| *byte != b'/'), 1..8)
        .prop_filter("dots", |name| name != b"." && name != b"..")
}

fn windows_name() -> impl Strategy<Value = Vec<u16>> {
    let unit = prop_oneof![0x20_u16..0x7f, any::<u16>()].prop_filter("separator", |unit| ![0x2f, 0x5c].contains(unit));
    prop::collection::vec(unit, 1..8).prop_filter("dots", |name| name != &[0x2e] && name != &[0x2e, 0x2e])
}

proptest! {
    #[test]
    fn every_posix_path_comes_back(names in prop::collection::vec(posix_name(), 0..5)) {
        let mut path = Vec::new();
        for name in &names {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        let path = NativePath::Posix(path);
        let uri = PathUri::from_native(&path).unwrap();
        prop_assert_eq!(uri.to_native("linux").unwrap(), path);
        prop_assert_eq!(PathUri::parse(uri.as_str()).unwrap(), uri);
    }

    #[test]
    fn every_windows_path_comes_back(drive in prop::option::of(0_u16..26), names in prop::collection::vec(windows_name(), 1..5)) {
        let mut path: Vec<u16> = match drive {
            Some(letter) => vec![0x41 + letter, 0x3a],
            None => r"\\server\share".encode_utf16().collect(),
        };
        for name in &names {
            path.push(0x5c);
            path.extend_from_slice(name);
        }
        let path = NativePath::Windows(path);
        let uri = PathUri::from_native(&path).unwrap();
        prop_assert_eq!(uri.to_native("windows").unwrap(), path);
        prop_assert_eq!(PathUri::parse(uri.as_str()).unwrap(), uri);
    }

    #[test]
    fn parsing_is_idempotent_and_never_panics(text in "(file:)?[/\\\\a-cC:%.0-9|?# ]{0,24}") {
        if let Ok(uri) = PathUri::parse(&text) {
            prop_assert_eq!(&PathUri::parse(uri.as_str()).unwrap(), &uri);
            for os in ["linux", "windows"] {
                if let Ok(native) = uri.to_native(os) {
                    let back = PathUri::from_native(&native).unwrap();
                    prop_assert_eq!(back.to_native(os).unwrap(), native);
                }
            }
            let _ = (uri.parent(), uri.file_name(), uri.starts_with(&uri), uri.join("x"));
        }
    }

    #[test]
    fn a_join_stays_below_its_root_and_its_parent_is_the_base(name in "[a-zA-Z0-9 %?#]{1,8}") {
        for base in ["file:///a/b", "file:///C:/a", "file://s/h/a"] {
            let base = PathUri::parse(base).unwrap();
            let joined = base.join(&name).unwrap();
            prop_assert!(joined.starts_with(&base));
            prop_assert_eq!(joined.parent().unwrap(), base);
        }
    }
}
