//! An S3 server in this process, over a folder: counts traffic, and fails on demand.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse};
use s3s_fs::FileSystem;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::kit::{self, Folder};

/// The key with all permissions.
const KEY: &str = "KEYOFTESTS";
/// Must not appear anywhere.
pub(crate) const SECRET: &str = "thesecretofthetests0123456789";

/// A server with the buckets `logs` and `out`. Stopped when dropped.
pub(crate) struct Server {
    root: tempfile::TempDir,
    address: SocketAddr,
    runtime: Option<Runtime>,
    pub(crate) state: Arc<ServerState>,
}

/// What the server has counted and what it should do.
#[derive(Default)]
pub(crate) struct ServerState {
    /// Bytes sent to clients, including response headers.
    sent: AtomicU64,
    /// Requests as `METHOD /bucket/key?query`.
    requests: Mutex<Vec<String>>,
    /// The fault for the last of this many requests that contain the text.
    plan: Mutex<Option<(String, u64, PlannedFault)>>,
    dead: AtomicBool,
    /// No request is answered any longer.
    pub(crate) silent: AtomicBool,
    /// Conditional uploads are answered as by servers that do not know the header.
    pub(crate) lacks_conditions: AtomicBool,
    /// Answers that are not as they should be.
    pub(crate) altered: Mutex<Option<AlteredAnswers>>,
}

/// The next `times` answers to requests with the text are altered.
pub(crate) struct AlteredAnswers {
    pub(crate) text: &'static str,
    pub(crate) times: u64,
    pub(crate) how: fn(&mut HttpResponse),
}

/// What a request triggers.
pub(crate) enum PlannedFault {
    /// The server disappears, as if killed.
    Die,
    /// This and all later requests with the text are refused.
    Refuse,
    /// This and all later requests with the text are taken for invalid.
    Reject,
    /// This and all later requests with the text get this response.
    Say(&'static str),
    /// An object is replaced before the request is served.
    Change(PathBuf, Vec<u8>),
    /// This is done before the request is served.
    Act(Box<dyn FnOnce() + Send>),
    /// The request is served, but the answer says that the server failed.
    Forget,
    /// This and all later requests with the text fail.
    Fail,
    /// The request is to be repeated.
    Conflict,
    /// This and all later requests with the text are never answered.
    Silence,
    /// This and all later requests, whatever they are, are never answered.
    FallSilent,
}

impl Server {
    pub(crate) fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        for bucket in ["logs", "out"] {
            fs::create_dir(root.path().join(bucket)).unwrap();
        }
        let mut service = S3ServiceBuilder::new(FileSystem::new(root.path()).unwrap());
        service.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let (service, state) = (service.build(), Arc::<ServerState>::default());
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(accept(listener, service, Arc::clone(&state)));
        Self { root, address, runtime: Some(runtime), state }
    }

    /// The program, with this server's address and credentials in its environment.
    pub(crate) fn sluice(&self, folder: &Folder) -> Command {
        let mut command = kit::sluice(folder);
        let others = std::env::vars_os().map(|(name, _)| name);
        for name in others.filter(|name| name.as_encoded_bytes().starts_with(b"AWS_")) {
            command.env_remove(name);
        }
        command
            .env("AWS_ENDPOINT_URL", format!("http://{}", self.address))
            .env("AWS_ALLOW_HTTP", "true")
            // Some tests wait for a dead server.
            .env("AWS_MAX_ATTEMPTS", "4")
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET);
        command
    }

    pub(crate) fn ran(&self, folder: &Folder, arguments: &[&str]) -> kit::ProgramOutput {
        kit::ProgramOutput::from_output(self.sluice(folder).args(arguments).output().unwrap())
    }

    /// Writes an object, without a request.
    pub(crate) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn get(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}; {:?}", self.keys("out")))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The keys of a bucket, sorted.
    pub(crate) fn keys(&self, bucket: &str) -> Vec<String> {
        let mut keys = Vec::new();
        let root = self.path(bucket);
        collect(&root, &root, &mut keys);
        keys.sort();
        keys
    }

    /// Plans a fault for the `times`th request that contains this text.
    pub(crate) fn on(&self, text: &str, times: u64, then: PlannedFault) {
        *self.state.plan.lock().unwrap() = Some((text.to_owned(), times, then));
    }

    pub(crate) fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    /// The bytes sent since the last call.
    pub(crate) fn sent(&self) -> u64 {
        self.state.sent.swap(0, Ordering::Relaxed)
    }

    /// The requests since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.state.requests.lock().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn collect(root: &Path, folder: &Path, keys: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, keys);
        } else {
            keys.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
        }
    }
}

async fn accept(listener: TcpListener, service: S3Service, state: Arc<ServerState>) {
    while !state.dead.load(Ordering::Relaxed) {
        // How soon a dead server is noticed without requests.
        let waited = std::time::Duration::from_millis(20);
        let Ok(accepted) = tokio::time::timeout(waited, listener.accept()).await else { continue };
        let Ok((socket, _)) = accepted else { continue };
        tokio::spawn(serve(socket, service.clone(), Arc::clone(&state)));
    }
}

async fn serve(socket: TcpStream, service: S3Service, state: Arc<ServerState>) {
    let io = TokioIo::new(CountingSocket { socket, state: Arc::clone(&state) });
    let answer = service_fn(move |request| answer(service.clone(), Arc::clone(&state), request));
    // A client may disconnect.
    drop(http1::Builder::new().serve_connection(io, answer).await);
}

async fn answer(
    service: S3Service,
    state: Arc<ServerState>,
    request: hyper::Request<Incoming>,
) -> Result<HttpResponse, HttpError> {
    let line = format!("{} {}", request.method(), request.uri());
    state.requests.lock().unwrap().push(line.clone());
    let is_put = request.method() == hyper::Method::PUT;
    let is_conditional = ["if-match", "if-none-match"];
    let is_conditional =
        is_put && is_conditional.iter().any(|name| request.headers().contains_key(*name));
    if is_conditional && state.lacks_conditions.load(Ordering::Relaxed) {
        let body = Body::from("<Error><Code>NotImplemented</Code></Error>".to_owned());
        return Ok(hyper::Response::builder().status(501).body(body).unwrap());
    }
    let planned = state.planned(&line);
    if planned == Some(SILENCE) {
        return std::future::pending().await;
    }
    // The server fails after it has served the request.
    let is_served = planned.is_none_or(|(status, _)| status == 500);
    let served = if is_served { Some(Service::call(&service, request).await) } else { None };
    match (planned, served) {
        (None, Some(served)) => served.map(|answer| state.alter(&line, answer)),
        (planned, _) => {
            let (status, body) = planned.unwrap();
            let response = hyper::Response::builder().status(status);
            Ok(response.body(Body::from(body.to_owned())).unwrap())
        }
    }
}

/// The planned response of a server that never answers.
const SILENCE: (u16, &str) = (0, "");

impl ServerState {
    /// The answer to a request, altered if that is planned.
    fn alter(&self, line: &str, mut answer: HttpResponse) -> HttpResponse {
        let mut altered = self.altered.lock().unwrap();
        if let Some(AlteredAnswers { text, times, how }) = altered.as_mut()
            && *times > 0
            && line.contains(*text)
        {
            *times -= 1;
            how(&mut answer);
        }
        answer
    }

    /// Triggers the planned fault; returns the response if it replaces the real one.
    fn planned(&self, line: &str) -> Option<(u16, &'static str)> {
        if self.silent.load(Ordering::Relaxed) {
            return Some(SILENCE);
        }
        let mut plan = self.plan.lock().unwrap();
        let (text, times, then) = plan.as_mut()?;
        if !line.contains(&**text) {
            return None;
        }
        *times = times.saturating_sub(1);
        if *times > 0 {
            return None;
        }
        match then {
            PlannedFault::Refuse => return Some((403, "<Error><Code>AccessDenied</Code></Error>")),
            PlannedFault::Reject => return Some((400, "")),
            PlannedFault::Say(body) => return Some((200, *body)),
            PlannedFault::Forget => {
                *plan = None;
                return Some((500, "<Error><Code>InternalError</Code></Error>"));
            }
            PlannedFault::Fail => return Some((503, "<Error><Code>SlowDown</Code></Error>")),
            PlannedFault::Silence => return Some(SILENCE),
            PlannedFault::FallSilent => {
                self.silent.store(true, Ordering::Relaxed);
                return Some(SILENCE);
            }
            PlannedFault::Conflict => {
                *plan = None;
                return Some((409, "<Error><Code>ConditionalRequestConflict</Code></Error>"));
            }
            PlannedFault::Act(_) => {
                let Some((.., PlannedFault::Act(act))) = plan.take() else { unreachable!() };
                // It may ask this server.
                drop(plan);
                tokio::task::block_in_place(act);
                return None;
            }
            PlannedFault::Die => self.dead.store(true, Ordering::Relaxed),
            PlannedFault::Change(path, bytes) => fs::write(path, bytes).unwrap(),
        }
        *plan = None;
        None
    }
}

/// A connection that counts bytes, and breaks when the server is dead.
struct CountingSocket {
    socket: TcpStream,
    state: Arc<ServerState>,
}

impl CountingSocket {
    fn check(&self) -> io::Result<()> {
        let dead = self.state.dead.load(Ordering::Relaxed);
        if dead { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl AsyncRead for CountingSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl AsyncWrite for CountingSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        if let Poll::Ready(Ok(len)) = written {
            self.state.sent.fetch_add(len as u64, Ordering::Relaxed);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
