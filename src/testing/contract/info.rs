//! What a place says of itself.

use crate::path_uri::PathUri;

use super::context::Context;

cases! {"info":
    a_place_says_what_it_is,
    what_it_says_is_kept_and_can_be_asked_anew,
}

async fn a_place_says_what_it_is(cx: Context) {
    let info = cx.environment().info().await.unwrap_or_else(|error| panic!("it says nothing: {error}"));
    assert!(!info.shell.name.is_empty() && !info.shell.path.is_empty(), "{info:?}");
    // The place shares a file system with this program. What it does not know, it leaves out.
    if let Some(system) = &info.platform_os {
        assert_eq!(system, std::env::consts::OS);
    }
    for directory in [&info.cwd, &info.temp_dir].into_iter().flatten() {
        let native = directory.to_host_native_path().unwrap_or_else(|error| panic!("{directory}: {error}"));
        assert!(native.is_dir(), "{directory} is no directory");
    }
    let named = info.temporary_directories.iter().flatten().chain(&info.home_dir);
    let foreign: Vec<&PathUri> = named.filter(|uri| uri.to_host_native_path().is_err()).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

async fn what_it_says_is_kept_and_can_be_asked_anew(cx: Context) {
    let place = cx.environment();
    let first = place.info().await.unwrap_or_else(|error| panic!("it says nothing: {error}"));
    assert_eq!(place.info().await.ok().as_ref(), Some(&first));
    assert_eq!(place.fresh_info().await.ok().as_ref(), Some(&first), "nothing has changed");
}
