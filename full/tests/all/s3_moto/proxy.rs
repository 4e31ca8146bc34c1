//! A proxy in front of an object store, which fails on demand: one request per connection.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use socket2::SockRef;

/// What happens to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProxyFault {
    /// The answer is 503, as from a store with too much to do.
    Busy,
    /// The answer is 404, as if there were no such object.
    Missing,
    /// Nothing is answered, until the client hangs up.
    Silence,
    /// The connection is reset after this many bytes of the request.
    ResetRequest(usize),
    /// The connection is reset after this many bytes of the response.
    ResetResponse(usize),
    /// The response comes in pieces of this many bytes, with pauses.
    Trickle(usize),
}

/// The fault for requests with this text, and how many of them.
type Plan = Option<(String, u64, ProxyFault)>;

/// A proxy. Its threads end with the test program.
pub(crate) struct FaultyProxy {
    pub(crate) address: SocketAddr,
    state: Arc<ProxyState>,
}

struct ProxyState {
    store: SocketAddr,
    plan: Mutex<Plan>,
    /// The requests that met the fault.
    faults: Mutex<Vec<String>>,
}

impl FaultyProxy {
    pub(crate) fn start(store: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (plan, faults) = (Mutex::default(), Mutex::default());
        let state = Arc::new(ProxyState { store, plan, faults });
        let shared = Arc::clone(&state);
        let accept = move || {
            for client in listener.incoming() {
                let (client, state) = (client.unwrap(), Arc::clone(&shared));
                // Clients and the store may hang up at any time.
                let serve = move || drop(state.serve(client));
                std::thread::Builder::new().spawn(serve).unwrap();
            }
        };
        std::thread::Builder::new().spawn(accept).unwrap();
        Self { address, state }
    }

    /// Plans a fault for the next `times` requests whose first line contains this text.
    pub(crate) fn on(&self, text: &str, times: u64, fault: ProxyFault) {
        *self.state.plan.lock().unwrap() = Some((text.to_owned(), times, fault));
        self.state.faults.lock().unwrap().clear();
    }

    /// Plans no more faults.
    pub(crate) fn end_faults(&self) {
        *self.state.plan.lock().unwrap() = None;
    }

    /// The requests that have met the planned fault.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.state.faults.lock().unwrap().clone()
    }
}

impl ProxyState {
    fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        let (head, rest) = read_head(&mut client)?;
        let fault = self.planned(head.lines().next().unwrap_or_default());
        match fault {
            Some(ProxyFault::Busy | ProxyFault::Missing) => {
                // Read first, or the client could see a reset instead.
                forward(&mut client, rest.len(), body_length(&head), &mut std::io::sink())?;
                let is_busy = matches!(fault, Some(ProxyFault::Busy));
                return client.write_all(if is_busy { BUSY } else { MISSING }.as_bytes());
            }
            Some(ProxyFault::Silence) => {
                return std::io::copy(&mut client, &mut std::io::sink()).map(drop);
            }
            Some(ProxyFault::ResetRequest(bytes)) => {
                let bytes = bytes.min(body_length(&head));
                forward(&mut client, rest.len(), bytes, &mut std::io::sink())?;
                return reset(client);
            }
            Some(ProxyFault::ResetResponse(_) | ProxyFault::Trickle(_)) | None => {}
        }
        let mut store = TcpStream::connect(self.store)?;
        let head = head.replacen("\r\n\r\n", "\r\nconnection: close\r\n\r\n", 1);
        store.write_all(head.as_bytes())?;
        store.write_all(&rest)?;
        forward(&mut client, rest.len(), body_length(&head), &mut store)?;
        match fault {
            Some(ProxyFault::ResetResponse(bytes)) => {
                std::io::copy(&mut store.take(bytes as u64), &mut client)?;
                reset(client)
            }
            Some(ProxyFault::Trickle(bytes)) => trickle(store, client, bytes),
            _ => {
                std::io::copy(&mut store, &mut client)?;
                client.shutdown(Shutdown::Both)
            }
        }
    }

    /// The fault for the request with this first line.
    fn planned(&self, line: &str) -> Option<ProxyFault> {
        let mut plan = self.plan.lock().unwrap();
        let (text, times, fault) = plan.as_mut()?;
        if *times == 0 || !line.contains(&**text) {
            return None;
        }
        *times -= 1;
        self.faults.lock().unwrap().push(line.to_owned());
        Some(*fault)
    }
}

const BUSY: &str = "HTTP/1.1 503 Slow Down\r\nconnection: close\r\ncontent-length: 38\r\n\r\n\
    <Error><Code>SlowDown</Code></Error>\r\n";

const MISSING: &str = "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The head of a request, and what was read of its body.
fn read_head(client: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let body = bytes.split_off(end + 4);
            return Ok((String::from_utf8(bytes).unwrap(), body));
        }
        let len = client.read(&mut piece)?;
        if len == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend(&piece[..len]);
    }
}

/// The length of the body of a request with this head.
fn body_length(head: &str) -> usize {
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let length = fields.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    length.map_or(0, |(_, length)| length.trim().parse().unwrap())
}

/// Copies the first `len` bytes of a body, of which `read` have been read.
fn forward(
    client: &mut TcpStream,
    read: usize,
    len: usize,
    to: &mut impl Write,
) -> std::io::Result<()> {
    std::io::copy(&mut client.take(len.saturating_sub(read) as u64), to).map(drop)
}

/// Closes a connection as if the other side had crashed.
fn reset(client: TcpStream) -> std::io::Result<()> {
    SockRef::from(&client).set_linger(Some(Duration::ZERO))
}

fn trickle(mut store: TcpStream, mut client: TcpStream, bytes: usize) -> std::io::Result<()> {
    let mut piece = vec![0; bytes];
    loop {
        let len = store.read(&mut piece)?;
        if len == 0 {
            return client.shutdown(Shutdown::Both);
        }
        client.write_all(&piece[..len])?;
        std::thread::sleep(Duration::from_millis(5));
    }
}
