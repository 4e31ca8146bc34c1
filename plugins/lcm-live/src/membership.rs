//! Keeps a receiving socket in its group: the system forgets the membership when the interface
//! goes, and does not tell. Receives nothing itself.

use std::io;
use std::time::{Duration, Instant};

use sluice_model::LossLog;
use socket2::Socket;

use crate::options::{self, Interface};
use crate::udp;
use crate::url::UdpUrl;

/// How long nothing arrives before the membership is checked, and how often.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The membership of a socket in its group.
pub(crate) struct Membership {
    url: UdpUrl,
    interface: Option<Interface>,
    /// When something arrived, or the membership was checked.
    checked: Instant,
    /// Whether the interface was gone at the last check.
    is_gone: bool,
}

impl Membership {
    pub(crate) fn new(url: UdpUrl, interface: Option<Interface>) -> Self {
        Self { url, interface, checked: Instant::now(), is_gone: false }
    }

    /// Something has arrived.
    pub(crate) fn confirm(&mut self) {
        self.checked = Instant::now();
    }

    /// Joins the group again if nothing has arrived for a while, and the membership is gone.
    pub(crate) fn renew_if_silent(&mut self, socket: &Socket, losses: &LossLog) {
        if self.checked.elapsed() < CHECK_INTERVAL {
            return;
        }
        self.checked = Instant::now();
        let joined = options::resolve_interface(self.interface.as_ref())
            .map(|interface| udp::join(socket, &self.url, interface));
        let is_gone = match joined {
            Ok(Ok(())) => {
                let what = "the network interface was replaced, and the group joined again; \
                            messages sent meanwhile were not received";
                losses.note(what, 1);
                false
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::AddrInUse => false,
            _ => true,
        };
        if is_gone && !self.is_gone {
            let what = "nothing arrives: the network interface is gone, or there is no route to \
                        the group; joining it again when they are back";
            losses.note(what, 1);
        }
        self.is_gone = is_gone;
    }
}
