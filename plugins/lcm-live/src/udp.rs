//! Sockets for UDP multicast: opened, set up, and explained where the system refuses. Knows no message.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use nix::sys::socket::{setsockopt, sockopt};
use sluice_core::Error;
use sluice_core::options::ByteSize;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockAddr, Socket, Type};

use crate::options::Card;
use crate::url::UdpUrl;

/// A socket that receives, and what is worth telling about it.
pub(crate) struct Listening {
    pub(crate) socket: Socket,
    /// The bytes of datagrams that the system keeps for it.
    pub(crate) buffer: ByteSize,
    /// What the user may want to change.
    pub(crate) advice: Option<String>,
}

/// Opens a socket that receives what is sent to the group of `url`.
pub(crate) fn listen(url: &UdpUrl, card: Card, buffer: ByteSize) -> Result<Listening, Error> {
    let fail = |error| explained("receive from", url, card, error);
    let socket = socket().map_err(fail)?;
    // Any number of programs listen on one machine.
    socket.set_reuse_address(true).map_err(fail)?;
    let (buffer, advice) = grow_buffer(&socket, url, buffer).map_err(fail)?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true).map_err(|e| fail(e.into()))?;
    setsockopt(&socket, sockopt::RxqOvfl, &1).map_err(|e| fail(e.into()))?;
    // Bound to the group, so that nothing else that is sent to the port arrives.
    socket.bind(&address(url)).map_err(fail)?;
    match card {
        Card::Route => socket.join_multicast_v4(&url.group, &Ipv4Addr::UNSPECIFIED),
        Card::Address(own) => socket.join_multicast_v4(&url.group, &own),
        Card::Index(index) => {
            socket.join_multicast_v4_n(&url.group, &InterfaceIndexOrAddress::Index(index))
        }
    }
    .map_err(fail)?;
    Ok(Listening { socket, buffer, advice })
}

/// Opens a socket that sends to the group of `url`.
pub(crate) fn sender(url: &UdpUrl, card: Card) -> Result<Socket, Error> {
    let fail = |error| explained("send to", url, card, error);
    let socket = socket().map_err(fail)?;
    socket.set_multicast_ttl_v4(u32::from(url.ttl)).map_err(fail)?;
    socket.set_multicast_loop_v4(true).map_err(fail)?;
    match card {
        Card::Route => {}
        Card::Address(own) => socket.set_multicast_if_v4(&own).map_err(fail)?,
        Card::Index(index) => set_card(&socket, index).map_err(fail)?,
    }
    // So that the route is looked up once, and is missed now and not with the first message.
    socket.connect(&address(url)).map_err(fail)?;
    Ok(socket)
}

/// How many datagrams the system has dropped because the socket's buffer was full, as its table of sockets
/// has it: also those behind the last one received. Nothing where there is no such table.
pub(crate) fn drops(socket: &Socket) -> Option<u64> {
    let inode = rustix::fs::fstat(socket).ok()?.st_ino;
    drops_in(&fs::read_to_string("/proc/net/udp").ok()?, inode)
}

fn drops_in(table: &str, inode: u64) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields.get(9)?.parse() == Ok(inode);
        is_ours.then(|| fields.last()?.parse().ok()).flatten()
    })
}

/// Why the group cannot be used, and what to do.
pub(crate) fn explained(what: &str, url: &UdpUrl, card: Card, error: io::Error) -> Error {
    let at = format!("cannot {what} {}:{}", url.group, url.port);
    let route = "name the network interface (`interface = \"lo\"`, --interface lo), or give multicast a route: \
                 ip route add 224.0.0.0/4 dev lo";
    match error.kind() {
        io::ErrorKind::AddrInUse => Error::refused(format!(
            "{at}: another program has the port for itself; end it (`ss -ulpn` shows it), or use another \
             port"
        )),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            Error::refused(format!("{at}: there is no route to it; {route}"))
        }
        io::ErrorKind::NetworkDown => Error::refused(format!(
            "{at}: the network interface is down; `ip link set … up` brings it up, or use another one"
        )),
        io::ErrorKind::PermissionDenied => Error::refused(format!(
            "{at}: the system does not permit it; a firewall rule may forbid multicast ({error})"
        )),
        _ if is_gone(&error) => {
            let which =
                if card == Card::Route { "no interface can" } else { "the interface cannot" };
            Error::refused(format!("{at}: {which} do multicast, or it is gone; {route}"))
        }
        _ => Error::refused(format!("{at}: {error}")),
    }
}

/// What the system says of an interface that is not there (any more).
fn is_gone(error: &io::Error) -> bool {
    use nix::errno::Errno;
    let known = [Errno::ENODEV, Errno::ENXIO, Errno::EADDRNOTAVAIL].map(|errno| errno as i32);
    error.raw_os_error().is_some_and(|errno| known.contains(&errno))
}

fn socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))
}

fn address(url: &UdpUrl) -> SockAddr {
    SocketAddr::V4(SocketAddrV4::new(url.group, url.port)).into()
}

/// Has the system send through this interface.
fn set_card(socket: &Socket, index: u32) -> io::Result<()> {
    // Only an address can be named by the library; any address of the interface will do.
    match address_of(index)? {
        Some(own) => socket.set_multicast_if_v4(&own),
        None => Err(io::Error::from_raw_os_error(nix::errno::Errno::EADDRNOTAVAIL as i32)),
    }
}

/// An address of an interface.
fn address_of(index: u32) -> io::Result<Option<Ipv4Addr>> {
    for entry in nix::ifaddrs::getifaddrs()? {
        let named = nix::net::if_::if_nametoindex(entry.interface_name.as_str()) == Ok(index);
        let own = entry.address.as_ref().and_then(|address| address.as_sockaddr_in());
        if let (true, Some(own)) = (named, own) {
            return Ok(Some(own.ip()));
        }
    }
    Ok(None)
}

/// Gives the socket a large buffer: that of the address, or else as much as is wanted.
fn grow_buffer(
    socket: &Socket,
    url: &UdpUrl,
    wanted: ByteSize,
) -> io::Result<(ByteSize, Option<String>)> {
    let asked = url.receive_buffer.unwrap_or(usize::try_from(wanted.0).unwrap_or(usize::MAX));
    let asked = asked.min(i32::MAX as usize / 2);
    // Who may, goes beyond the limit; but not where the address says how much.
    let forced =
        url.receive_buffer.is_none() && setsockopt(socket, sockopt::RcvBufForce, &asked).is_ok();
    if !forced {
        socket.set_recv_buffer_size(asked)?;
    }
    // The system doubles the number, for what it needs itself.
    let got = socket.recv_buffer_size()? / 2;
    let advice = (got < asked).then(|| {
        let (asked, limit) = (ByteSize(asked as u64), limit());
        format!(
            "the system gives the socket a buffer of {} only, {asked} were asked for: \
             net.core.rmem_max is {limit}; sysctl -w net.core.rmem_max={} raises it",
            ByteSize(got as u64),
            asked.0
        )
    });
    Ok((ByteSize(got as u64), advice))
}

fn limit() -> String {
    let text = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    text.trim().parse().map_or_else(|_| "not known".into(), |bytes| ByteSize(bytes).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_found_in_the_systems_table() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 1041: 00000000:0044 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 18152 2 0000000000000000 0
 8640: 434CFFEF:1DF3 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 99021 2 0000000000000000 4711
";
        assert_eq!(drops_in(table, 99_021), Some(4711));
        assert_eq!(drops_in(table, 1), None);
        let socket = socket().unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        assert_eq!(drops(&socket), Some(0));
    }
}
