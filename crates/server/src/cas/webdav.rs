//! What clients of WebDAV ask before they write. Sccache is one: it looks whether the directory of a key is there, and
//! makes it otherwise. Keys need no directories, so that all are there.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Clients want a time, and the cache keeps none for them.
const TIME: &str = "Thu, 01 Jan 1970 00:00:00 GMT";

/// The properties of a directory, or of a value with that number of bytes. The path has no characters that XML knows.
pub(super) fn properties(path: &str, bytes: Option<u64>) -> Response {
    let kind = match bytes {
        Some(bytes) => format!("<D:resourcetype/><D:getcontentlength>{bytes}</D:getcontentlength>"),
        None => "<D:resourcetype><D:collection/></D:resourcetype>".to_owned(),
    };
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>{path}</D:href>\
         <D:propstat><D:prop>{kind}<D:getlastmodified>{TIME}</D:getlastmodified></D:prop>\
         <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>\n"
    );
    (StatusCode::MULTI_STATUS, [(header::CONTENT_TYPE, "application/xml; charset=utf-8")], text)
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_is_told_from_a_value() {
        let text = async |bytes| {
            let answer = properties("/cache/kv/a/", bytes);
            assert_eq!(answer.status().as_u16(), 207);
            let body = axum::body::to_bytes(answer.into_body(), 1 << 16).await.unwrap();
            String::from_utf8(body.to_vec()).unwrap()
        };
        assert!(text(None).await.contains("<D:collection/>"));
        let value = text(Some(7)).await;
        assert!(value.contains(">7<") && !value.contains("collection"), "{value}");
    }
}
