//! Requests to the scheduler's admin API: one small JSON request per connection.

use std::error::Error;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST};
use axum::http::{Method, Request, StatusCode};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::endpoint::SchedulerEndpoint;
use crate::request_error::RequestError;

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(8);

/// The longest response that is read: those of large clusters take some hundred kilobytes.
const MAX_RESPONSE: usize = 16 << 20;

/// The JSON response to `GET path`.
pub(crate) async fn get_json<T: DeserializeOwned>(
    to: &SchedulerEndpoint,
    path: &str,
) -> Result<T, RequestError> {
    let response = timeout(TIMEOUT, exchange(to, Method::GET, path, String::new())).await;
    let response =
        response.map_err(|_| RequestError::Unreachable("no response within 8 s".into()))??;
    serde_json::from_slice(&response).map_err(|_| RequestError::NotSluice)
}

/// Sends JSON with `POST path`. Failures are ignored.
pub(crate) async fn post_json<T: Serialize>(to: &SchedulerEndpoint, path: &str, body: &T) {
    let Ok(text) = serde_json::to_string(body) else { return };
    drop(timeout(TIMEOUT, exchange(to, Method::POST, path, text)).await);
}

/// The body of a response with status 200.
async fn exchange(
    to: &SchedulerEndpoint,
    method: Method,
    path: &str,
    json: String,
) -> Result<Bytes, RequestError> {
    let stream = to.connect().await?;
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, to.to_string())
        .header(CONNECTION, "close")
        .header(CONTENT_TYPE, "application/json")
        .body(json)
        .map_err(|e| RequestError::Unreachable(e.to_string()))?;
    if let Some(secret) = to.credentials.secret() {
        request.headers_mut().insert(AUTHORIZATION, secret.to_header());
    }
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| request_error(to, &e))?;
    // Ends with the response. Its errors also reach the request, unless it fails before it takes
    // the request.
    let connection = tokio::spawn(connection);
    let response = match sender.send_request(request).await {
        Ok(response) => response,
        Err(error) if error.is_canceled() => {
            let cause = connection.await.ok().and_then(Result::err);
            return Err(request_error(to, &cause.unwrap_or(error)));
        }
        Err(error) => return Err(request_error(to, &error)),
    };
    match response.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED => return Err(RequestError::Refused(secret_refused(to))),
        _ => return Err(RequestError::NotSluice),
    }
    let body = to_bytes(Body::new(response.into_body()), MAX_RESPONSE).await;
    body.map_err(|e| RequestError::Unreachable(e.to_string()))
}

/// The message for a scheduler that does not accept the secret of this process, or misses it.
fn secret_refused(to: &SchedulerEndpoint) -> String {
    match to.credentials.secret() {
        Some(_) => format!(
            "the scheduler at {to} has another secret than this process: pass the same \
             --secret-file to both"
        ),
        None => format!(
            "the scheduler at {to} wants a secret: pass --secret-file with the file that it uses"
        ),
    }
}

/// A connection that closes without a response comes from a tunnel whose scheduler is not running.
fn request_error(to: &SchedulerEndpoint, error: &hyper::Error) -> RequestError {
    if let Some(refused) = certificate_error(to, error) {
        return refused;
    }
    if error.is_parse() {
        return RequestError::NotSluice;
    }
    RequestError::Unreachable(if error.is_incomplete_message() {
        "the connection was closed without a response".into()
    } else {
        error.to_string()
    })
}

/// What an error says about certificates. A scheduler checks that of a client when the client
/// considers the connection ready, so its refusal is the response to the first request.
fn certificate_error(to: &SchedulerEndpoint, error: &hyper::Error) -> Option<RequestError> {
    let tls = to.credentials.tls()?;
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    let mut io_errors = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>());
    io_errors.find_map(|error| tls.request_error(&to.address, error))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::credentials::Credentials;

    /// What a request returns if the server sends `response`.
    async fn response_to(response: &str) -> Result<Vec<u8>, RequestError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let to = SchedulerEndpoint { address, credentials: Credentials::default() };
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let read = stream.read(&mut [0; 1024]).await.unwrap();
            assert!(read > 0);
            stream.write_all(response.as_bytes()).await.unwrap();
        };
        tokio::join!(get_json(&to, "/"), serve).0
    }

    #[tokio::test]
    async fn only_successful_responses_have_a_body() {
        assert_eq!(response_to("HTTP/1.1 200 OK\r\nA: b\r\n\r\n[1]").await, Ok(vec![1]));
        for other in [
            "HTTP/1.1 404 Not Found\r\n\r\n[1]",
            "SSH-2.0-OpenSSH\r\n",
            "HTTP/1.1 200 OK\r\n\r\n[1",
        ] {
            assert_eq!(response_to(other).await, Err(RequestError::NotSluice), "{other}");
        }
    }

    #[tokio::test]
    async fn an_empty_response_differs_from_that_of_another_server() {
        let closed = "the connection was closed without a response";
        assert_eq!(response_to("").await, Err(RequestError::Unreachable(closed.into())));
    }
}
