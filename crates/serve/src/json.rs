//! Request bodies: JSON objects, not too large, not too slow.

use crate::error::{Kind, Refusal};
use crate::state::App;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, header};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// A body that was read as JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Refusal> {
        check_type(request.headers())?;
        let (parts, body) = request.into_parts();
        let bytes = read(app, &parts.headers, body).await?;
        serde_json::from_slice(&bytes).map(|Object(value)| Json(value)).map_err(|e| {
            let kind = if e.is_data() { Kind::Validation } else { Kind::Malformed };
            Refusal::new(kind, format!("the body is not what this route takes: {}", plainly(&e.to_string())))
        })
    }
}

/// What serde says of shapes, in the words of the API.
pub(crate) fn plainly(error: &str) -> String {
    let expected = [
        ("enum PredictInputs", "`inputs` is a text, a pair [text, text], or a batch of lists of one or two texts"),
        ("enum Inputs", "`inputs` is a text, its token ids, or a list of these"),
        ("enum TextOrIds", "every input is a text or a list of token ids"),
        ("unknown field `deadline_ms`", "`deadline_ms` stands beside `inputs`, not in `sparing`, and in its place"),
    ];
    expected.into_iter().find(|(said, _)| error.contains(said)).map_or(error.to_owned(), |(_, plain)| plain.to_owned())
}

/// A value that must be written as an object. By itself serde takes a list of fields in their order for a struct as well.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Object<T>(pub(crate) T);

impl<T> Deref for Object<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_map(Fields(PhantomData)).map(Object)
    }
}

/// The bytes of a body within the limits.
pub(crate) async fn read(app: &App, headers: &HeaderMap, body: Body) -> Result<axum::body::Bytes, Refusal> {
    let limits = &app.settings.limits;
    let too_large = || Refusal::new(Kind::TooLarge, format!("the body has more than {} bytes", limits.payload));
    let length = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limits.payload as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(limits.patience, to_bytes(body, limits.payload)).await {
        Err(_) => Err(Refusal::new(Kind::Slow, "the body came too slowly")),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(e)) if is_length(&e) => Err(too_large()),
        Ok(Err(e)) => Err(Refusal::new(Kind::Malformed, format!("the body could not be read: {e}"))),
    }
}

/// Whether a body was longer than allowed.
fn is_length(error: &axum::Error) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = source {
        if error.to_string().contains("length limit") {
            return true;
        }
        source = error.source();
    }
    false
}

fn check_type(headers: &HeaderMap) -> Result<(), Refusal> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json")) {
        return Ok(());
    }
    Err(Refusal::new(Kind::MediaType, "send JSON, with the header content-type: application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Dial;

    #[test]
    fn shapes_are_told_in_plain_words() {
        let error = serde_json::from_str::<Dial>("{\"deadline_ms\": 20}").unwrap_err().to_string();
        assert!(plainly(&error).contains("beside `inputs`"), "{error}");
        assert_eq!(plainly("missing field `inputs`"), "missing field `inputs`");
    }

    #[test]
    fn lists_are_not_objects() {
        let read = |text: &str| serde_json::from_str::<Option<Object<Dial>>>(text).map_err(|e| e.to_string());
        assert_eq!(read("null"), Ok(None));
        assert_eq!(read("{}"), Ok(Some(Object(Dial::default()))));
        assert_eq!(read("{\"precision\": \"int8\"}").unwrap().unwrap().precision.as_deref(), Some("int8"));
        assert!(read("[null, null]").unwrap_err().contains("expected an object"));
        assert!(read("{\"speed\": 1}").unwrap_err().contains("unknown field"));
    }
}
