//! Keeps a receiving socket in its group: the system forgets the membership when the interface
//! goes, and does not tell. Receives nothing itself.

use std::time::{Duration, Instant};

use sluice_model::LossLog;
use socket2::{InterfaceIndexOrAddress, Socket};

use crate::options::{self, Interface, SocketInterface};
use crate::udp;
use crate::url::UdpUrl;

/// How long nothing arrives before the membership is checked, and how often.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The membership of a socket in its group.
pub(crate) struct Membership {
    url: UdpUrl,
    interface: Option<Interface>,
    /// The number of the interface on which it is a member; `None` if that is gone, or not known.
    joined: Option<u32>,
    /// When something arrived, or the membership was checked.
    checked: Instant,
    /// Whether the interface was gone at the last check.
    is_gone: bool,
}

impl Membership {
    /// That of a socket which has joined the group on this interface.
    pub(crate) fn new(url: UdpUrl, given: Option<Interface>, interface: SocketInterface) -> Self {
        let joined = udp::index_of(interface, &url);
        Self { url, interface: given, joined, checked: Instant::now(), is_gone: false }
    }

    /// Something has arrived.
    pub(crate) fn confirm(&mut self) {
        self.checked = Instant::now();
    }

    /// Joins the group again if nothing has arrived for a while, and the interface was replaced.
    pub(crate) fn renew_if_silent(&mut self, socket: &Socket, losses: &LossLog) {
        if self.checked.elapsed() < CHECK_INTERVAL {
            return;
        }
        self.checked = Instant::now();
        if let Some(index) = self.joined.filter(|index| !udp::has_interface(*index)) {
            // The socket keeps it, and may have only a few. It may be gone already.
            let old = InterfaceIndexOrAddress::Index(index);
            socket.leave_multicast_v4_n(&self.url.group, &old).ok();
            (self.joined, self.is_gone) = (None, true);
            let what = "the network interface is gone, so that nothing arrives; joining the group \
                        again when it is back";
            losses.note(what, 1);
        }
        if !self.is_gone {
            return;
        }
        let Ok(interface) = options::resolve_interface(self.interface.as_ref()) else { return };
        if udp::join(socket, &self.url, interface).is_ok() {
            (self.joined, self.is_gone) = (udp::index_of(interface, &self.url), false);
            let what = "the network interface was replaced, and the group joined again; messages \
                        sent meanwhile were not received";
            losses.note(what, 1);
        }
    }
}
