//! Checks that a page of a listing is whole. The library reads neither the name of its root element
//! nor `IsTruncated`, so that to it any XML without objects is the end of a listing.

use std::error::Error as _;
use std::fmt;

use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse};
use quick_xml::events::Event;
use quick_xml::reader::Reader;

/// The most keys that a request for a page of a listing asks for, `usize::MAX` if it leaves them to
/// the store; `None` for other requests.
pub(crate) fn most_keys(request: &HttpRequest) -> Option<usize> {
    let query = request.uri().query().unwrap_or_default();
    let is_listing = request.method().as_str() == "GET"
        && query.split('&').any(|parameter| parameter == "list-type=2");
    let mut limits = query.split('&').filter_map(|parameter| parameter.strip_prefix("max-keys="));
    is_listing.then(|| limits.next().and_then(|most| most.parse().ok()).unwrap_or(usize::MAX))
}

/// The answer to a request for a page of up to this many keys, if it is a whole page or reports a
/// failure itself.
pub(crate) async fn checked(
    answer: HttpResponse,
    most_keys: usize,
) -> Result<HttpResponse, HttpError> {
    if !answer.status().is_success() {
        return Ok(answer);
    }
    let (head, body) = answer.into_parts();
    let body = body.bytes().await?;
    match check_page(&body, most_keys) {
        Ok(()) => Ok(HttpResponse::from_parts(head, body.into())),
        // The library does not repeat what failed for unknown reasons.
        Err(fault) => Err(HttpError::new(HttpErrorKind::Unknown, fault)),
    }
}

/// Whether a request has failed by its answer, which was no whole page.
pub(crate) fn is_fault(error: &HttpError) -> bool {
    error.source().is_some_and(|source| source.is::<ListingFault>())
}

/// What is wrong with a page of a listing, as what the store does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ListingFault {
    /// Another element in place of a listing, or nothing.
    OtherRoot(Option<String>),
    /// More keys follow, but not how to ask for them.
    NoToken,
    /// It says that a page follows which it has sent before.
    Repeats,
    /// The page ends within an element, or is no XML.
    CutOff,
}

impl fmt::Display for ListingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherRoot(root) => {
                f.write_str(
                    "does not list objects as S3 stores do: expected <ListBucketResult>, ",
                )?;
                match root {
                    Some(root) => write!(f, "found <{root}>")?,
                    None => f.write_str("found no XML")?,
                }
                f.write_str("; check its address, and what else may answer there, such as a proxy")
            }
            Self::NoToken => f.write_str(
                "cuts off a listing of objects (IsTruncated without NextContinuationToken), as if \
                 it did not know version 2 of listings; name each object instead, or copy them",
            ),
            Self::Repeats => f.write_str(
                "repeats a page of a listing (NextContinuationToken is one that was sent \
                 before); name each object instead, or copy them",
            ),
            Self::CutOff => f.write_str(
                "cuts off a listing of objects in the middle of its XML; try again, and check \
                 what may answer in its place, such as a proxy",
            ),
        }
    }
}

impl std::error::Error for ListingFault {}

/// Stores without version 2 of listings send no token. A page is whole even so if it has all the
/// keys that were asked for; whoever needs the keys behind them asks without a limit.
fn check_page(page: &[u8], most_keys: usize) -> Result<(), ListingFault> {
    let mut reader = Reader::from_reader(page);
    let (mut depth, mut field, mut entries) = (0_u64, Field::Other, 0_usize);
    let (mut is_truncated, mut has_token, mut is_listing) = (String::new(), false, false);
    loop {
        let event = reader.read_event().map_err(|_| match is_listing {
            true => ListingFault::CutOff,
            false => ListingFault::OtherRoot(None),
        })?;
        match event {
            Event::Start(element) => {
                depth += 1;
                let name = element.local_name();
                match depth {
                    1 if name.as_ref() != b"ListBucketResult" => {
                        return Err(other_root(name.as_ref()));
                    }
                    1 => is_listing = true,
                    2 => {
                        field = Field::of(name.as_ref());
                        entries += usize::from(field == Field::Entry);
                    }
                    _ => field = Field::Other,
                }
            }
            Event::Empty(element) if depth == 0 => {
                let name = element.local_name();
                return match name.as_ref() {
                    b"ListBucketResult" => Ok(()),
                    name => Err(other_root(name)),
                };
            }
            Event::End(_) => {
                depth = depth.saturating_sub(1);
                field = Field::Other;
                if depth == 0 {
                    break;
                }
            }
            Event::Text(text) => match field {
                Field::IsTruncated => is_truncated.push_str(&String::from_utf8_lossy(&text)),
                Field::NextToken => has_token |= !text.trim_ascii().is_empty(),
                Field::Entry | Field::Other => {}
            },
            Event::CData(text) => has_token |= field == Field::NextToken && !text.is_empty(),
            Event::GeneralRef(_) => has_token |= field == Field::NextToken,
            Event::Eof if is_listing => return Err(ListingFault::CutOff),
            Event::Eof => return Err(ListingFault::OtherRoot(None)),
            _ => {}
        }
    }
    let is_truncated = ["true", "1"].contains(&is_truncated.trim().to_ascii_lowercase().as_str());
    let lacks_keys = is_truncated && !has_token && entries < most_keys;
    if lacks_keys { Err(ListingFault::NoToken) } else { Ok(()) }
}

/// What an element of a listing tells.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    IsTruncated,
    NextToken,
    /// A key, or what several begin with.
    Entry,
    Other,
}

impl Field {
    fn of(name: &[u8]) -> Self {
        match name {
            b"IsTruncated" => Self::IsTruncated,
            b"NextContinuationToken" => Self::NextToken,
            b"Contents" | b"CommonPrefixes" => Self::Entry,
            _ => Self::Other,
        }
    }
}

/// The fault with the name of the root, shortened: it may be anything.
fn other_root(name: &[u8]) -> ListingFault {
    const MOST: usize = 40;
    let name = String::from_utf8_lossy(name);
    let name = name.chars().filter(|c| !c.is_control()).take(MOST).collect();
    ListingFault::OtherRoot(Some(name))
}

#[cfg(test)]
mod tests {
    use object_store::client::HttpRequestBody;

    use super::*;

    fn page(inside: &str) -> Result<(), ListingFault> {
        page_of(usize::MAX, inside)
    }

    fn page_of(most_keys: usize, inside: &str) -> Result<(), ListingFault> {
        let page = format!("<?xml version=\"1.0\"?>\n<ListBucketResult>{inside}");
        check_page(page.as_bytes(), most_keys)
    }

    #[test]
    fn whole_pages_pass() {
        for inside in [
            "</ListBucketResult>",
            "<IsTruncated>false</IsTruncated></ListBucketResult>",
            "<IsTruncated>false</IsTruncated><NextContinuationToken/></ListBucketResult>",
            "<IsTruncated> true\n</IsTruncated>\n<NextContinuationToken>1/&amp;=</\
             NextContinuationToken></ListBucketResult>\n",
            "<NextContinuationToken>&lt;</NextContinuationToken><IsTruncated>true</IsTruncated>\
             </ListBucketResult>",
            "<NextContinuationToken><![CDATA[<a>]]></NextContinuationToken><IsTruncated>true\
             </IsTruncated></ListBucketResult>",
            // Keys may be like what tells whether a listing goes on.
            "<Contents><Key>&lt;IsTruncated>true&lt;/IsTruncated></Key></Contents>\
             <Contents><Key><![CDATA[<IsTruncated>true</IsTruncated>]]></Key></Contents>\
             <Contents><IsTruncated>true</IsTruncated></Contents></ListBucketResult>",
        ] {
            assert_eq!(page(inside), Ok(()), "{inside}");
        }
        let named = b"<s3:ListBucketResult xmlns:s3=\"http://s3.amazonaws.com/doc/2006-03-01/\"/>";
        assert_eq!(check_page(named, usize::MAX), Ok(()));
    }

    #[test]
    fn pages_that_are_cut_off_are_refused() {
        for inside in [
            "<IsTruncated>true</IsTruncated></ListBucketResult>",
            "<IsTruncated>true</IsTruncated><NextContinuationToken/></ListBucketResult>",
            "<NextContinuationToken> \n</NextContinuationToken><IsTruncated>true</IsTruncated>\
             </ListBucketResult>",
            "<IsTruncated>True</IsTruncated><Contents><NextContinuationToken>a\
             </NextContinuationToken></Contents></ListBucketResult>",
            "<IsTruncated>true</IsTruncated><Contents><Key>&lt;NextContinuationToken>a\
             &lt;/NextContinuationToken></Key></Contents></ListBucketResult>",
        ] {
            assert_eq!(page(inside), Err(ListingFault::NoToken), "{inside}");
        }
        for inside in
            ["", "<IsTruncated>false</IsTruncated>", "<Contents><Key>a", "<Contents></Key>"]
        {
            assert_eq!(page(inside), Err(ListingFault::CutOff), "{inside}");
        }
    }

    #[test]
    fn pages_with_all_the_keys_that_were_asked_for_need_no_token() {
        let two = "<Contents><Key>a</Key></Contents><IsTruncated>true</IsTruncated>\
             <CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes></ListBucketResult>";
        assert_eq!(page_of(2, two), Ok(()));
        assert_eq!(page_of(3, two), Err(ListingFault::NoToken));
        let cut_off = "<IsTruncated>true</IsTruncated><Contents><Key>a</Key></Contents>";
        assert_eq!(page_of(1, cut_off), Err(ListingFault::CutOff));
        // Only elements of the listing itself are entries.
        let nested = "<IsTruncated>true</IsTruncated><Owner><Contents></Contents></Owner>\
             </ListBucketResult>";
        assert_eq!(page_of(1, nested), Err(ListingFault::NoToken));
    }

    #[test]
    fn requests_for_pages_are_known_by_their_query() {
        let most = |method: &str, query: &str| {
            let request = http::Request::builder().method(method).uri(format!("http://h/b{query}"));
            most_keys(&request.body(HttpRequestBody::empty()).unwrap())
        };
        assert_eq!(most("GET", "?delimiter=%2F&list-type=2&max-keys=1"), Some(1));
        assert_eq!(most("GET", "?list-type=2&prefix=max-keys%3D1"), Some(usize::MAX));
        assert_eq!(most("GET", "?max-keys=1"), None);
        assert_eq!(most("PUT", "?list-type=2"), None);
        assert_eq!(most("GET", ""), None);
    }

    #[test]
    fn answers_that_are_no_listings_are_refused() {
        for (answer, root) in [
            ("<!DOCTYPE html>\n<html><p>log in<br></html>", Some("html")),
            ("<Error><Code>InternalError</Code></Error>", Some("Error")),
            ("<ListAllMyBucketsResult/>", Some("ListAllMyBucketsResult")),
            ("{\"objects\": []}", None),
            ("", None),
            ("<", None),
        ] {
            let fault = ListingFault::OtherRoot(root.map(str::to_owned));
            assert_eq!(check_page(answer.as_bytes(), 0), Err(fault), "{answer}");
        }
        assert!(is_fault(&HttpError::new(HttpErrorKind::Unknown, ListingFault::NoToken)));
        assert!(!is_fault(&HttpError::new(HttpErrorKind::Unknown, std::io::Error::other("no"))));
        let long = format!("<{}>", "a".repeat(5000));
        assert!(check_page(long.as_bytes(), 0).unwrap_err().to_string().len() < 300);
    }
}
