//! The address of a PostgreSQL server: the driver's own part, and what the driver does not know: how TLS is used and where the sealing key is.

use std::net::IpAddr;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsUse {
    Disable,
    /// If the server offers it; nothing is checked. The default for servers on this machine only.
    Prefer,
    /// Always; the server's certificate is checked only against `sslrootcert`, its name is not.
    Require,
    VerifyFull,
}

pub(crate) struct PostgresAddress {
    pub(crate) config: Config,
    pub(crate) tls: TlsUse,
    pub(crate) root: Option<PathBuf>,
    pub(crate) seal_key: Option<PathBuf>,
}

impl PostgresAddress {
    /// Reads an address; the reason never holds the password.
    pub(crate) fn read(url: &str) -> Result<Self, String> {
        let (mut tls, mut root, mut seal_key) = (None, None, None);
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let mut left = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let text = percent_decode_str(value).decode_utf8().map_err(|_| format!("`{name}` is no text"))?;
            match name {
                "sslmode" => tls = Some(tls_use(&text)?),
                "sslrootcert" => root = Some(PathBuf::from(text.as_ref())),
                "sealkey" => seal_key = Some(PathBuf::from(text.as_ref())),
                _ => left.push(pair),
            }
        }
        let rest = if left.is_empty() { base.to_owned() } else { format!("{base}?{}", left.join("&")) };
        let mut config: Config =
            rest.parse().map_err(|_| "the PostgreSQL address can't be read".to_owned())?;
        // Over a network, send a password only to a verified server, unless the address says otherwise.
        let tls = tls.unwrap_or(if is_local(&config) { TlsUse::Prefer } else { TlsUse::VerifyFull });
        config.ssl_mode(match tls {
            TlsUse::Disable => SslMode::Disable,
            TlsUse::Prefer => SslMode::Prefer,
            TlsUse::Require | TlsUse::VerifyFull => SslMode::Require,
        });
        Ok(Self { config, tls, root, seal_key })
    }

    /// Which database it is, without user and password: hosts, ports, name and session options.
    pub(crate) fn place(&self) -> String {
        let hosts: Vec<String> = self.config.get_hosts().iter().map(|host| format!("{host:?}")).collect();
        format!(
            "{} {:?} {} {}",
            hosts.join(","),
            self.config.get_ports(),
            self.config.get_dbname().unwrap_or_default(),
            self.config.get_options().unwrap_or_default()
        )
    }
}

fn tls_use(text: &str) -> Result<TlsUse, String> {
    match text {
        "disable" => Ok(TlsUse::Disable),
        "prefer" => Ok(TlsUse::Prefer),
        "require" => Ok(TlsUse::Require),
        "verify-full" => Ok(TlsUse::VerifyFull),
        _ => Err("`sslmode` must be disable, prefer, require or verify-full".to_owned()),
    }
}

fn is_local(config: &Config) -> bool {
    let named = config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    });
    named && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_14_a_server_elsewhere_must_prove_who_it_is_unless_the_address_says_otherwise() {
        let tls = |url: &str| PostgresAddress::read(url).unwrap().tls;
        assert_eq!(tls("postgres://u:p@db.example.com/d"), TlsUse::VerifyFull);
        assert_eq!(tls("postgres://u:p@10.0.0.7/d?application_name=x"), TlsUse::VerifyFull);
        assert_eq!(tls("postgres://u@localhost,db.example.com/d"), TlsUse::VerifyFull, "one is elsewhere");
        assert_eq!(tls("postgres://u@localhost/d?hostaddr=10.0.0.7"), TlsUse::VerifyFull, "the name lies");
        for local in ["postgres://u@localhost/d", "postgres://u@127.0.0.1/d", "postgres://u@%2Ftmp/d"] {
            assert_eq!(tls(local), TlsUse::Prefer, "{local}");
        }
        for (word, expect) in [
            ("disable", TlsUse::Disable),
            ("prefer", TlsUse::Prefer),
            ("require", TlsUse::Require),
            ("verify-full", TlsUse::VerifyFull),
        ] {
            assert_eq!(tls(&format!("postgres://u@db/d?sslmode={word}&connect_timeout=2")), expect);
        }
        for bad in ["sslmode=allow", "sslmode=", "sslmode=VERIFY-FULL", "nonsense=1"] {
            assert!(PostgresAddress::read(&format!("postgres://u:hunter2@db/d?{bad}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn files_are_named_in_the_address() {
        let read = PostgresAddress::read(
            "postgres://u@db/d?sslrootcert=%2Fetc%2Fca.pem&sealkey=/k%20s&application_name=x",
        );
        let read = read.unwrap();
        assert_eq!(read.root, Some("/etc/ca.pem".into()));
        assert_eq!(read.seal_key, Some("/k s".into()));
        assert_eq!(read.config.get_application_name(), Some("x"));
        assert_ne!(read.place(), PostgresAddress::read("postgres://u@db/e").unwrap().place());
        assert_eq!(read.place(), PostgresAddress::read("postgres://other:pw@db/d").unwrap().place());
    }
}
