//! A minimal HTTP client for the scheduler's admin API: one small JSON request per connection, so
//! no client library is needed.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::address::Address;

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(8);

/// The longest response that is read: those of large clusters take some hundred kilobytes.
const MAX_RESPONSE: u64 = 16 << 20;

/// Why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// Nothing is listening, or it does not respond.
    Unreachable(String),
    /// Something other than a Sluice scheduler is listening.
    NotSluice,
}

/// The JSON response to `GET path`.
pub(crate) async fn get_json<T: DeserializeOwned>(
    to: &Address,
    path: &str,
) -> Result<T, RequestError> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    let response = timeout(TIMEOUT, exchange(to, &request)).await;
    let response =
        response.map_err(|_| RequestError::Unreachable("no response within 8 s".into()))?;
    let response = response.map_err(|e| RequestError::Unreachable(e.to_string()))?;
    parse_response(&response)
}

/// Sends JSON with `POST path`. Failures are ignored.
pub(crate) async fn post_json<T: Serialize>(to: &Address, path: &str, body: &T) {
    let Ok(text) = serde_json::to_string(body) else { return };
    let length = text.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{text}"
    );
    drop(timeout(TIMEOUT, exchange(to, &request)).await);
}

async fn exchange(to: &Address, request: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((to.host.as_str(), to.port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE).read_to_end(&mut response).await?;
    Ok(response)
}

/// Parses the JSON body of a response. An empty response comes from a tunnel whose scheduler is not
/// running.
fn parse_response<T: DeserializeOwned>(response: &[u8]) -> Result<T, RequestError> {
    if response.is_empty() {
        return Err(RequestError::Unreachable(
            "the connection was closed without a response".into(),
        ));
    }
    let body = response_body(response).ok_or(RequestError::NotSluice)?;
    serde_json::from_slice(body).map_err(|_| RequestError::NotSluice)
}

/// The body of a response with status 200.
fn response_body(response: &[u8]) -> Option<&[u8]> {
    let end = response.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(response.get(..end)?).ok()?;
    let mut words = head.lines().next()?.split(' ');
    let is_ok = words.next()?.starts_with("HTTP/1.") && words.next()? == "200";
    if is_ok { response.get(end + 4..) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_successful_responses_have_a_body() {
        assert_eq!(response_body(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}"), Some(&b"{}"[..]));
        assert_eq!(response_body(b"HTTP/1.1 404 Not Found\r\n\r\n{}"), None);
        assert_eq!(response_body(b"SSH-2.0-OpenSSH\r\n"), None);
        assert_eq!(response_body(b""), None);
    }

    #[test]
    fn an_empty_response_differs_from_that_of_another_server() {
        let parse_response = |response: &str| parse_response::<Vec<u8>>(response.as_bytes());
        assert_eq!(parse_response("HTTP/1.1 200 OK\r\n\r\n[1]"), Ok(vec![1]));
        assert!(matches!(parse_response(""), Err(RequestError::Unreachable(_))));
        for other in ["SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\n\r\n[1"] {
            assert_eq!(parse_response(other), Err(RequestError::NotSluice), "{other}");
        }
    }
}
