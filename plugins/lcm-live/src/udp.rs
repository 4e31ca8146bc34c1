//! Opens and configures sockets for UDP multicast, and explains errors. Knows no messages.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use nix::errno::Errno;
use nix::ifaddrs::InterfaceAddress;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::{SockaddrIn, setsockopt, sockopt};
use sluice_model::Error;
use sluice_model::options::ByteSize;
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, SockAddr, Socket, Type};

use crate::options::SocketInterface;
use crate::url::UdpUrl;

/// A receiving socket, with notes for the user.
pub(crate) struct GroupSocket {
    pub(crate) socket: Socket,
    /// The size of its receive buffer.
    pub(crate) buffer: ByteSize,
    /// Advice for the user.
    pub(crate) advice: Vec<String>,
}

/// Opens a socket that receives from the group of `url`.
pub(crate) fn open_receiver(
    url: &UdpUrl,
    interface: SocketInterface,
    buffer: ByteSize,
) -> Result<GroupSocket, Error> {
    let fail = |error| explain_error("receive from", url, interface, error);
    let is_down = is_down(interface).map_err(fail)?;
    let socket = socket().map_err(fail)?;
    // Any number of programs may listen on one machine.
    socket.set_reuse_address(true).map_err(fail)?;
    let (buffer, advice) = grow_buffer(&socket, url, buffer).map_err(fail)?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true).map_err(|e| fail(e.into()))?;
    setsockopt(&socket, sockopt::RxqOvfl, &1).map_err(|e| fail(e.into()))?;
    // Bound to the group, so that nothing else sent to the port arrives.
    socket.bind(&address(url)).map_err(fail)?;
    join(&socket, url, interface).map_err(fail)?;
    let advice = advice.into_iter().chain(is_down.then(|| DOWN.to_owned())).collect();
    Ok(GroupSocket { socket, buffer, advice })
}

/// Joins the group of `url`.
pub(crate) fn join(socket: &Socket, url: &UdpUrl, interface: SocketInterface) -> io::Result<()> {
    match interface {
        SocketInterface::Route => socket.join_multicast_v4(&url.group, &Ipv4Addr::UNSPECIFIED),
        SocketInterface::Address(own) => socket.join_multicast_v4(&url.group, &own),
        SocketInterface::Index(index) => {
            socket.join_multicast_v4_n(&url.group, &InterfaceIndexOrAddress::Index(index))
        }
    }
}

/// The number of an interface for this group, if it can be found.
pub(crate) fn index_of(interface: SocketInterface, url: &UdpUrl) -> Option<u32> {
    let own = match interface {
        SocketInterface::Index(index) => return Some(index),
        SocketInterface::Address(own) => own,
        SocketInterface::Route => {
            let socket = socket().ok()?;
            socket.connect(&address(url)).ok()?;
            *socket.local_addr().ok()?.as_socket_ipv4()?.ip()
        }
    };
    let mut entries = nix::ifaddrs::getifaddrs().ok()?;
    index_of_entry(&entries.find(|entry| ipv4_address(entry) == Some(own))?)
}

/// Whether there is an interface with this number.
pub(crate) fn has_interface(index: u32) -> bool {
    // It gives an empty name where there is none.
    nix::net::if_::if_indextoname(index).is_ok_and(|name| !name.is_empty())
}

/// A recorder may start before its interface does.
const DOWN: &str = "the network interface is down: nothing arrives until `ip link set … up`";

/// A socket that sends to a group.
pub(crate) struct SendingSocket {
    pub(crate) socket: Socket,
    /// The address of each datagram; `None` if the socket is connected.
    pub(crate) destination: Option<SockaddrIn>,
}

/// Opens a socket that sends to the group of `url`.
pub(crate) fn open_sender(
    url: &UdpUrl,
    interface: SocketInterface,
) -> Result<SendingSocket, Error> {
    let fail = |error| explain_error("send to", url, interface, error);
    let open = || -> io::Result<Socket> {
        let socket = socket()?;
        socket.set_multicast_ttl_v4(u32::from(url.ttl))?;
        socket.set_multicast_loop_v4(true)?;
        match interface {
            SocketInterface::Route => {}
            SocketInterface::Address(own) => socket.set_multicast_if_v4(&own)?,
            SocketInterface::Index(index) => set_interface(&socket, index)?,
        }
        Ok(socket)
    };
    let socket = open().map_err(fail)?;
    // Looks up the route once, and fails now rather than with the first message.
    socket.connect(&address(url)).map_err(fail)?;
    if interface != SocketInterface::Route {
        return Ok(SendingSocket { socket, destination: None });
    }
    // Connecting gives a socket an address, and multicast from an address goes through the
    // interface that has it: not `lo`, though the route says so, if there is another interface.
    let destination = Some(SocketAddrV4::new(url.group, url.port).into());
    Ok(SendingSocket { socket: open().map_err(fail)?, destination })
}

/// How many datagrams the system has dropped because the socket's buffer was full, including those
/// after the last one received. `None` if the system has no such table.
pub(crate) fn dropped_datagrams(socket: &Socket) -> Option<u64> {
    let inode = rustix::fs::fstat(socket).ok()?.st_ino;
    dropped_in_table(&fs::read_to_string("/proc/net/udp").ok()?, inode)
}

fn dropped_in_table(table: &str, inode: u64) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields.get(9)?.parse() == Ok(inode);
        is_ours.then(|| fields.last()?.parse().ok()).flatten()
    })
}

/// Why the group cannot be used, and what to do about it.
pub(crate) fn explain_error(
    what: &str,
    url: &UdpUrl,
    interface: SocketInterface,
    error: io::Error,
) -> Error {
    let at = format!("cannot {what} {}:{}", url.group, url.port);
    let route = "name the network interface (`interface = \"lo\"`, --interface lo), or give \
                 multicast a route: ip route add 224.0.0.0/4 dev lo";
    match error.kind() {
        io::ErrorKind::AddrInUse => Error::refused(format!(
            "{at}: another program uses the port exclusively; stop it (`ss -ulpn` shows it), or \
             use another port"
        )),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            Error::refused(match interface {
                SocketInterface::Route => format!("{at}: no route to the group; {route}"),
                _ => format!(
                    "{at}: no route to the group through the interface; `ip address` shows whether \
                     it is up and has an address"
                ),
            })
        }
        io::ErrorKind::NetworkDown => Error::refused(format!(
            "{at}: the network interface is down; bring it up with `ip link set … up`, or use \
             another one"
        )),
        io::ErrorKind::PermissionDenied => {
            Error::refused(format!("{at}: not permitted, perhaps by a firewall rule ({error})"))
        }
        _ if is_gone(&error) => Error::refused(match interface {
            SocketInterface::Route => format!("{at}: no interface can do multicast; {route}"),
            _ => format!(
                "{at}: the interface cannot do multicast, does not exist, or has no address; \
                 list them with `ip address`"
            ),
        }),
        _ => Error::refused(format!("{at}: {error}")),
    }
}

/// Whether the error may pass by itself: an interface comes back, or gets its address and route.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable, PermissionDenied};
    let kinds = [HostUnreachable, NetworkDown, NetworkUnreachable, PermissionDenied];
    kinds.contains(&error.kind()) || is_gone(error)
}

/// Whether the error means that the interface does not exist (any more).
fn is_gone(error: &io::Error) -> bool {
    let known = [Errno::ENODEV, Errno::ENXIO, Errno::EADDRNOTAVAIL].map(|errno| errno as i32);
    error.raw_os_error().is_some_and(|errno| known.contains(&errno))
}

fn socket() -> io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))
}

fn address(url: &UdpUrl) -> SockAddr {
    SocketAddr::V4(SocketAddrV4::new(url.group, url.port)).into()
}

/// Whether the interface is down. A group can be joined there all the same.
fn is_down(interface: SocketInterface) -> io::Result<bool> {
    let is_meant = |entry: &InterfaceAddress| match interface {
        SocketInterface::Route => false,
        SocketInterface::Address(own) => ipv4_address(entry) == Some(own),
        SocketInterface::Index(index) => has_index(entry, index),
    };
    let mut meant = nix::ifaddrs::getifaddrs()?.filter(is_meant);
    Ok(meant.any(|entry| !entry.flags.contains(InterfaceFlags::IFF_UP)))
}

/// Selects the interface to send through.
fn set_interface(socket: &Socket, index: u32) -> io::Result<()> {
    // The library only takes an address; any address of the interface will do.
    match address_of(index)? {
        Some(own) => socket.set_multicast_if_v4(&own),
        None => Err(io::Error::from_raw_os_error(Errno::EADDRNOTAVAIL as i32)),
    }
}

/// An address of an interface.
fn address_of(index: u32) -> io::Result<Option<Ipv4Addr>> {
    let mut entries = nix::ifaddrs::getifaddrs()?.filter(|entry| has_index(entry, index));
    Ok(entries.find_map(|entry| ipv4_address(&entry)))
}

fn has_index(entry: &InterfaceAddress, index: u32) -> bool {
    index_of_entry(entry) == Some(index)
}

fn index_of_entry(entry: &InterfaceAddress) -> Option<u32> {
    nix::net::if_::if_nametoindex(entry.interface_name.as_str()).ok()
}

fn ipv4_address(entry: &InterfaceAddress) -> Option<Ipv4Addr> {
    Some(entry.address.as_ref()?.as_sockaddr_in()?.ip())
}

/// Sets the receive buffer to the size in the address, or else to `default_size`.
fn grow_buffer(
    socket: &Socket,
    url: &UdpUrl,
    default_size: ByteSize,
) -> io::Result<(ByteSize, Option<String>)> {
    let requested =
        url.receive_buffer.unwrap_or(usize::try_from(default_size.0).unwrap_or(usize::MAX));
    let requested = requested.min(i32::MAX as usize / 2);
    // Exceeds the limit if permitted, but not if the address sets the size.
    let forced = url.receive_buffer.is_none()
        && setsockopt(socket, sockopt::RcvBufForce, &requested).is_ok();
    if !forced {
        socket.set_recv_buffer_size(requested)?;
    }
    // The system doubles the number for its own use.
    let actual = socket.recv_buffer_size()? / 2;
    let advice = (actual < requested).then(|| {
        let (requested, limit) = (ByteSize(requested as u64), rmem_max());
        format!(
            "the system gives the socket a buffer of only {}, {requested} were requested: \
             net.core.rmem_max is {limit}; sysctl -w net.core.rmem_max={} raises it",
            ByteSize(actual as u64),
            requested.0
        )
    });
    Ok((ByteSize(actual as u64), advice))
}

fn rmem_max() -> String {
    let text = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
    text.trim().parse().map_or_else(|_| "unknown".into(), |bytes| ByteSize(bytes).to_string())
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
        assert_eq!(dropped_in_table(table, 99_021), Some(4711));
        assert_eq!(dropped_in_table(table, 1), None);
        let socket = socket().unwrap();
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        assert_eq!(dropped_datagrams(&socket), Some(0));
    }
}
