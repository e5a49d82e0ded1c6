//! The library's client: name resolution and proxies.

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, NoProxy, Proxy, redirect};

use super::classify::Unresolved;
use super::config::{LocalHttpConfig, Proxies};

/// The library's client, and what is to be known of it.
pub(super) struct Ready {
    pub(super) client: Client,
    /// Whether requests may go by a proxy.
    pub(super) by_proxy: bool,
    /// Why no certificate can be checked, if so. What needs none works all the same.
    pub(super) distrust: Option<String>,
}

impl Ready {
    /// May read the platform's roots from files. The reason if it is not possible.
    pub(super) fn new(config: &LocalHttpConfig) -> Result<Self, String> {
        let mut builder = Client::builder()
            .redirect(redirect::Policy::none())
            .referer(false)
            .dns_resolver(Resolver)
            // What other users of the library in this program have switched on must change nothing here.
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .no_proxy();
        let proxies = proxies(config)?;
        let by_proxy = !proxies.is_empty();
        for proxy in proxies {
            builder = builder.proxy(proxy);
        }
        #[cfg(feature = "tls")]
        let (tls, distrust) = crate::tls::client(&config.extra_roots)?;
        #[cfg(feature = "tls")]
        let builder = builder.tls_backend_preconfigured(tls);
        #[cfg(not(feature = "tls"))]
        let distrust = None;
        let client = builder.build().map_err(|error| crate::error::explain(&error.without_url()))?;
        Ok(Self { client, by_proxy, distrust })
    }
}

type MakeProxy = fn(&str) -> reqwest::Result<Proxy>;

fn proxies(config: &LocalHttpConfig) -> Result<Vec<Proxy>, String> {
    let unusable = |of: &str| format!("the proxy {of} is unusable");
    match &config.proxies {
        Proxies::None => Ok(Vec::new()),
        Proxies::Url(url) => Ok(vec![Proxy::all(url).map_err(|_| unusable("of the settings"))?]),
        Proxies::Variables => {
            let except =
                config.first_variable(&["NO_PROXY", "no_proxy"]).and_then(|(_, list)| NoProxy::from_string(&list));
            let for_http: &[_] = if config.variable("REQUEST_METHOD").is_some() {
                &["http_proxy"]
            } else {
                &["HTTP_PROXY", "http_proxy"]
            };
            let kinds: [(&[_], MakeProxy); 3] = [
                (for_http, |url| Proxy::http(url)),
                (&["HTTPS_PROXY", "https_proxy"], |url| Proxy::https(url)),
                (&["ALL_PROXY", "all_proxy"], |url| Proxy::all(url)),
            ];
            let mut proxies = Vec::new();
            for (names, proxy) in kinds {
                if let Some((name, url)) = config.first_variable(names) {
                    // The library's text would show the URL, which may hold a password.
                    let proxy = proxy(&url).map_err(|_| unusable(&format!("of the variable {name}")))?;
                    proxies.push(proxy.no_proxy(except.clone()));
                }
            }
            Ok(proxies)
        }
    }
}

/// The system's name resolution, with an error of its own.
struct Resolver;

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let addresses = crate::blocking::lookup(name.as_str(), 0).await.map_err(Unresolved)?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
