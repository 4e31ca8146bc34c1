//! Parses addresses of live LCM: `udpm://group:port?ttl=1` and `tcpq://host:port`.
//!
//! Accepts what the LCM library accepts, with the same defaults. Where the library would silently
//! receive nothing (port 0, an address that is no multicast group), it is an error. Names are
//! resolved only to compare addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};

use sluice_io::escape::escaped;

/// The environment variable with the default address.
pub(crate) const DEFAULT_URL_VARIABLE: &str = "LCM_DEFAULT_URL";

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 76, 67);
const UDP_PORT: u16 = 7667;
const TCP_HOST: &str = "127.0.0.1";
const TCP_PORT: u16 = 7700;

const UDP_EXAMPLE: &str = "udpm://239.255.76.67:7667?ttl=0";
const TCP_EXAMPLE: &str = "tcpq://127.0.0.1:7700";

/// The source or destination of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Url {
    /// A multicast group.
    Udp(UdpUrl),
    /// A hub that relays messages.
    Tcp(TcpUrl),
}

/// `udpm://group:port?ttl=N&recv_buf_size=N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpUrl {
    /// The group, 224.0.0.0 to 239.255.255.255.
    pub group: Ipv4Addr,
    /// The port, not 0.
    pub port: u16,
    /// How many routers a datagram may pass; 0 keeps it on this computer.
    pub ttl: u8,
    /// Receive buffer to request from the kernel (`recv_buf_size`); `None` for the default.
    pub receive_buffer: Option<usize>,
    /// Options unknown to LCM, as written: worth a warning.
    pub unknown_options: Vec<String>,
}

/// `tcpq://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpUrl {
    /// A name or address; an IPv6 address without brackets.
    pub host: String,
    /// The port, not 0.
    pub port: u16,
}

impl Default for UdpUrl {
    fn default() -> Self {
        Self {
            group: GROUP,
            port: UDP_PORT,
            ttl: 0,
            receive_buffer: None,
            unknown_options: Vec::new(),
        }
    }
}

impl Default for TcpUrl {
    fn default() -> Self {
        Self { host: TCP_HOST.to_owned(), port: TCP_PORT }
    }
}

impl Url {
    /// Parses an address; `Err` says what is wrong and what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((provider, rest)) = text.split_once("://") else {
            return Err(format!(
                "`{text}` is not a live lcm address; write {UDP_EXAMPLE} (multicast) or \
                 {TCP_EXAMPLE} (a hub)"
            ));
        };
        let (network, options) = rest.split_once('?').unwrap_or((rest, ""));
        match provider {
            "udpm" => UdpUrl::parse(network, options).map(Self::Udp),
            "tcpq" => TcpUrl::parse(network, options).map(Self::Tcp),
            other => Err(unknown_provider(text, other)),
        }
    }

    /// The default address: that of `LCM_DEFAULT_URL`, or else multicast on this computer.
    ///
    /// `Err` if the variable is set to an invalid address.
    pub fn default_url() -> Result<Self, String> {
        let value = std::env::var_os(DEFAULT_URL_VARIABLE).unwrap_or_default();
        let text = value.into_string().map_err(|value| {
            let value = escaped(value.as_encoded_bytes());
            format!("the environment variable `{DEFAULT_URL_VARIABLE}` is not UTF-8: `{value}`")
        });
        Self::parse_or_default(&text?)
    }

    /// Whether both are the same group and port, or the same hub.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Udp(one), Self::Udp(two)) => (one.group, one.port) == (two.group, two.port),
            (Self::Tcp(one), Self::Tcp(two)) => one.port == two.port && one.has_host_of(two),
            _ => false,
        }
    }

    /// Treats an empty variable as unset, as the library does.
    fn parse_or_default(variable: &str) -> Result<Self, String> {
        if variable.is_empty() {
            return Ok(Self::Udp(UdpUrl::default()));
        }
        Self::parse(variable).map_err(|error| format!("{DEFAULT_URL_VARIABLE}: {error}"))
    }
}

impl UdpUrl {
    fn parse(network: &str, options: &str) -> Result<Self, String> {
        let mut url = Self::default();
        if !network.is_empty() {
            (url.group, url.port) = group_and_port(network)?;
        }
        for (key, value) in option_pairs(options) {
            url.set(key, value)?;
        }
        Ok(url)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "ttl" => {
                self.ttl = value.parse().map_err(|_| {
                    format!("`ttl={value}` is not valid; write ttl=0 (this computer) to ttl=255")
                })?;
            }
            "recv_buf_size" => {
                let bytes: usize = value.parse().map_err(|_| {
                    format!(
                        "`recv_buf_size={value}` is not a number of bytes; write \
                         recv_buf_size=4194304"
                    )
                })?;
                self.receive_buffer = Some(bytes).filter(|bytes| *bytes > 0);
            }
            // No longer has a meaning, in the library either.
            "transmit_only" => {}
            other => self.unknown_options.push(other.to_owned()),
        }
        Ok(())
    }
}

impl TcpUrl {
    fn parse(network: &str, options: &str) -> Result<Self, String> {
        if let Some((key, _)) = option_pairs(options).next() {
            return Err(format!("tcpq takes no options, found `{key}`; write {TCP_EXAMPLE}"));
        }
        if network.is_empty() {
            return Ok(Self::default());
        }
        let (host, port) = host_and_port(network)?;
        Ok(Self { host: host.to_owned(), port: port.map_or(Ok(TCP_PORT), read_port)? })
    }

    /// Whether both hosts have an address in common, or the same name.
    fn has_host_of(&self, other: &Self) -> bool {
        let addresses = |url: &Self| (&*url.host, url.port).to_socket_addrs();
        match (addresses(self), addresses(other)) {
            (Ok(mut one), Ok(two)) => one.any(|address| two.as_slice().contains(&address)),
            _ => self.host == other.host,
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(url) => url.fmt(f),
            Self::Tcp(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for UdpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udpm://{}:{}?ttl={}", self.group, self.port, self.ttl)?;
        match self.receive_buffer {
            Some(bytes) => write!(f, "&recv_buf_size={bytes}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for TcpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "tcpq://[{}]:{}", self.host, self.port)
        } else {
            write!(f, "tcpq://{}:{}", self.host, self.port)
        }
    }
}

/// The options in order, separated by `?` or `&`.
fn option_pairs(options: &str) -> impl Iterator<Item = (&str, &str)> {
    let written = options.split(['?', '&']).filter(|option| !option.is_empty());
    written.map(|option| option.split_once('=').unwrap_or((option, "")))
}

fn group_and_port(network: &str) -> Result<(Ipv4Addr, u16), String> {
    let (group, port) = match network.split_once(':') {
        Some((group, port)) if !port.contains(':') => (group, read_port(port)?),
        _ => (network, UDP_PORT),
    };
    let group: Ipv4Addr = group.parse().map_err(|_| {
        format!(
            "`{group}` is not an IPv4 address; write a multicast group in numbers, as in \
             {UDP_EXAMPLE}"
        )
    })?;
    if !group.is_multicast() {
        return Err(format!(
            "{group} is the address of one computer; udpm needs a multicast group, \
             224.0.0.0 to 239.255.255.255, as in {UDP_EXAMPLE}"
        ));
    }
    Ok((group, port))
}

fn host_and_port(network: &str) -> Result<(&str, Option<&str>), String> {
    let wrong = || Err(format!("`{network}` is not a host and port; write {TCP_EXAMPLE}"));
    let (host, port) = match network.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, rest)) => match rest.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None => return wrong(),
        },
        None => match network.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(format!(
                    "`{network}` has more than one colon; write an IPv6 address in brackets, as \
                     in tcpq://[::1]:7700"
                ));
            }
            Some((host, port)) => (host, Some(port)),
            None => (network, None),
        },
    };
    let is_address = host.parse::<IpAddr>().is_ok();
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if is_address || (!host.is_empty() && host.chars().all(is_name)) {
        Ok((host, port))
    } else {
        wrong()
    }
}

fn read_port(port: &str) -> Result<u16, String> {
    match port.parse() {
        Ok(0) => Err("port 0 is not valid; write a port from 1 to 65535".to_owned()),
        Ok(port) => Ok(port),
        Err(_) => Err(format!("`{port}` is not a port; write a number from 1 to 65535")),
    }
}

fn unknown_provider(text: &str, provider: &str) -> String {
    match provider {
        "file" => {
            let (path, _) = text.split_once('?').unwrap_or((text, ""));
            let path = path.strip_prefix("file://").unwrap_or(path);
            format!(
                "`{text}` is a log, not a live source; read it with lcm-log and path = \"{path}\""
            )
        }
        "mpudpm" => format!(
            "`{text}` spreads channels over many ports, which is not supported; \
             let the senders use udpm, as in {UDP_EXAMPLE}"
        ),
        "memq" => format!(
            "`{text}` works within one process and cannot be received from outside; \
             let the sender use udpm, as in {UDP_EXAMPLE}"
        ),
        other => format!(
            "`{other}` is not a live lcm protocol; write {UDP_EXAMPLE} (multicast) or \
             {TCP_EXAMPLE} (a hub)"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn udp(text: &str) -> UdpUrl {
        match Url::parse(text).unwrap() {
            Url::Udp(url) => url,
            Url::Tcp(url) => panic!("{url} is not udp"),
        }
    }

    fn error(text: &str) -> String {
        Url::parse(text).unwrap_err()
    }

    #[test]
    fn an_empty_network_is_the_default_group_and_port() {
        assert_eq!(udp("udpm://"), UdpUrl::default());
        assert_eq!(udp("udpm://?ttl=3"), UdpUrl { ttl: 3, ..UdpUrl::default() });
        assert_eq!(UdpUrl::default().to_string(), UDP_EXAMPLE);
    }

    #[test]
    fn a_group_without_port_has_the_default_port() {
        let group = Ipv4Addr::new(224, 1, 2, 3);
        assert_eq!(udp("udpm://224.1.2.3"), UdpUrl { group, ..UdpUrl::default() });
        assert_eq!(udp("udpm://224.1.2.3:9"), UdpUrl { group, port: 9, ..UdpUrl::default() });
    }

    #[test]
    fn options_are_set_apart_by_either_sign_and_the_last_wins() {
        let url = udp("udpm://?ttl=1&recv_buf_size=4096?ttl=2?&transmit_only=true");
        let expected = UdpUrl { ttl: 2, receive_buffer: Some(4096), ..UdpUrl::default() };
        assert_eq!(url, expected);
        assert_eq!(udp("udpm://?recv_buf_size=9&recv_buf_size=0").receive_buffer, None);
    }

    #[test]
    fn unknown_options_are_kept_for_a_warning() {
        assert_eq!(udp("udpm://?tll=1&x").unknown_options, ["tll", "x"]);
    }

    #[test]
    fn what_would_hear_nothing_is_refused() {
        assert!(error("udpm://239.255.76.67:0").contains("port 0"));
        assert!(error("udpm://192.168.1.5:7667").contains("224.0.0.0 to 239.255.255.255"));
        assert!(error("udpm://:7667").contains("not an IPv4 address"));
        assert!(error("udpm://[ff02::1]:7667").contains("`[ff02::1]:7667` is not an IPv4 address"));
        assert!(error("udpm://robot:7667").contains("`robot`"));
        assert!(error("udpm://239.255.76.67:99999").contains("`99999`"));
        assert!(error("udpm://?ttl=256").contains("ttl=256"));
        assert!(error("udpm://?ttl").contains("ttl="));
        assert!(error("udpm://?recv_buf_size=-1").contains("recv_buf_size=-1"));
        assert!(error("239.255.76.67:7667").contains("write udpm://"));
    }

    #[test]
    fn other_providers_are_named_with_what_to_do() {
        assert!(error("file:///data/a.lcm?speed=2").contains("path = \"/data/a.lcm\""));
        assert!(error("memq://").contains("one process"));
        assert!(error("mpudpm://239.255.76.67:7667").contains("many ports"));
        assert!(error("http://x").contains("`http`"));
    }

    #[test]
    fn a_hub_is_a_host_and_a_port() {
        let tcp = |host: &str, port| Ok(Url::Tcp(TcpUrl { host: host.to_owned(), port }));
        assert_eq!(Url::parse("tcpq://"), tcp("127.0.0.1", 7700));
        assert_eq!(Url::parse("tcpq://robot-1.local"), tcp("robot-1.local", 7700));
        assert_eq!(Url::parse("tcpq://10.0.0.2:99"), tcp("10.0.0.2", 99));
        assert_eq!(Url::parse("tcpq://[::1]:99"), tcp("::1", 99));
        assert_eq!(Url::parse("tcpq://[::1]"), tcp("::1", 7700));
        for wrong in
            ["tcpq://::1", "tcpq://a/b", "tcpq://:1", "tcpq://[::1]9", "tcpq://a:0", "tcpq://?x=1"]
        {
            assert!(Url::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_variable_is_asked_before_the_default() {
        let default = Url::Udp(UdpUrl::default());
        assert_eq!(Url::parse_or_default(""), Ok(default));
        assert_eq!(Url::parse_or_default("tcpq://"), Ok(Url::Tcp(TcpUrl::default())));
        assert!(Url::parse_or_default("x").unwrap_err().starts_with("LCM_DEFAULT_URL: `x`"));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_again(
            group in 0xE000_0000u32..0xF000_0000, port in 1u16.., ttl: u8,
            buffer in proptest::option::of(1usize..),
        ) {
            let url = Url::Udp(UdpUrl {
                group: group.into(), port, ttl, receive_buffer: buffer, unknown_options: Vec::new(),
            });
            prop_assert_eq!(Url::parse(&url.to_string()), Ok(url));
        }

        #[test]
        fn any_text_is_an_address_that_can_be_printed_or_an_error(text in ".{0,40}") {
            for text in [text.clone(), format!("udpm://{text}"), format!("tcpq://{text}")] {
                if let Ok(url) = Url::parse(&text) {
                    let again = Url::parse(&url.to_string()).unwrap();
                    prop_assert_eq!(again.to_string(), url.to_string());
                }
            }
        }
    }

    #[test]
    fn addresses_are_compared_as_resolved() {
        let is_same = |one, two| Url::parse(one).unwrap().is_same(&Url::parse(two).unwrap());
        assert!(is_same("udpm://", "udpm://239.255.76.67:7667?ttl=1"));
        assert!(!is_same("udpm://239.255.76.67:7667", "udpm://239.255.76.67:7668"));
        assert!(!is_same("udpm://239.255.76.67:7667", "udpm://239.255.76.68:7667"));
        assert!(is_same("tcpq://", "tcpq://127.0.0.1:7700"));
        assert!(is_same("tcpq://localhost", "tcpq://127.0.0.1"));
        assert!(!is_same("tcpq://127.0.0.1:7700", "tcpq://127.0.0.1:7701"));
        assert!(!is_same("tcpq://127.0.0.1:7700", "tcpq://127.0.0.2:7700"));
        assert!(!is_same("udpm://", "tcpq://127.0.0.1:7667"));
    }
}
