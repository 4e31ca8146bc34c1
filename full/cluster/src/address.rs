//! The address of a cluster process: a host and a port. Does no lookup.

use std::fmt;
use std::str::FromStr;

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// A host name or an IP address; IPv6 without brackets.
    pub host: String,
    /// The port; 0 asks for a free one.
    pub port: u16,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected HOST:PORT, such as 10.0.0.5:50050".to_owned();
        let (host, port) = text.trim().rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        let host = bare.unwrap_or(host);
        let is_plain = bare.is_some() || !host.contains(':');
        if host.is_empty() || !is_plain || !host.chars().all(allowed) {
            return Err(wrong());
        }
        Ok(Self { host: host.to_owned(), port: port.parse().map_err(|_| wrong())? })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for text in ["127.0.0.1:50050", "rack-3.example:1", "[::1]:0"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn anything_but_a_host_and_a_port_is_refused() {
        for text in ["", "host", "host:", ":1", "::1:5", "http://host:1", "a b:1", "host:65536"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
