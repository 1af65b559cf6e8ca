//! The description of the API holds for what the handlers take and answer: [`assert_described`]
//! checks every exchange of these tests against it.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use axum::http::{Response, StatusCode, header};
use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};

use super::super::routes::{description, routes};
use super::ask;
use super::simulated_daemon::Pretended;

const NAME: &str = "mem:///openapi.json";

/// The description with all of its bodies compiled.
struct Described {
    document: Value,
    schemas: Schemas,
    /// Index of the schema at each pointer into the document.
    compiled: Vec<(String, SchemaIndex)>,
}

impl Described {
    fn get() -> &'static Described {
        static DESCRIBED: OnceLock<Described> = OnceLock::new();
        DESCRIBED.get_or_init(|| {
            let mut document = description::<Pretended>();
            refuse_unknown_fields(&mut document);
            let mut compiler = Compiler::new();
            compiler
                .add_resource(NAME, document.clone())
                .expect("a name");
            let (mut schemas, mut compiled) = (Schemas::new(), Vec::new());
            for pointer in pointers(&document) {
                let place = format!("{NAME}#{pointer}");
                let index = compiler.compile(&place, &mut schemas);
                compiled.push((pointer, index.unwrap_or_else(|error| panic!("{error:#}"))));
            }
            Described {
                document,
                schemas,
                compiled,
            }
        })
    }

    /// Returns the template of the document that a path follows.
    fn template(&self, path: &str) -> Option<&str> {
        let path = path.split('?').next().unwrap_or(path);
        let asked: Vec<&str> = path.split('/').collect();
        let paths = self.document["paths"].as_object().expect("an object");
        let mut templates = paths.keys().map(String::as_str);
        templates.find(|template| {
            let segments: Vec<&str> = template.split('/').collect();
            let fits = |(segment, asked): (&&str, &&str)| {
                segment == asked || (segment.starts_with('{') && !asked.is_empty())
            };
            segments.len() == asked.len() && segments.iter().zip(&asked).all(fits)
        })
    }

    fn assert_valid(&self, pointer: &str, value: &Value, what: &str) {
        let found = self.compiled.iter().find(|(known, _)| known == pointer);
        let (_, index) = found.unwrap_or_else(|| panic!("{what}: nothing at {pointer}"));
        if let Err(error) = self.schemas.validate(value, *index) {
            panic!("{what} is not as described at {pointer}: {error:#}\n{value:#}");
        }
    }
}

/// Returns the pointers of the schemas of all bodies in JSON.
fn pointers(document: &Value) -> Vec<String> {
    let mut pointers = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("an object") {
        for (method, operation) in methods.as_object().expect("an object") {
            let at = format!("/paths/{}/{method}", path.replace('/', "~1"));
            let mut bodies = vec![("requestBody".to_owned(), &operation["requestBody"])];
            let answers = operation["responses"].as_object().expect("an object");
            bodies.extend(
                answers
                    .iter()
                    .map(|(status, body)| (format!("responses/{status}"), body)),
            );
            let json = bodies
                .iter()
                .filter(|(_, body)| !body["content"]["application/json"].is_null());
            pointers.extend(json.map(|(name, _)| format!("{at}/{name}/{SCHEMA}")));
        }
    }
    pointers
}

/// Place of a schema below a body.
const SCHEMA: &str = "content/application~1json/schema";

/// Makes every type refuse fields that it does not describe, so that an answer with a field that
/// the description lacks is found. Types that are parts of others are left as they are.
fn refuse_unknown_fields(document: &mut Value) {
    let mut parts = BTreeSet::new();
    collect_parts(document, &mut parts);
    let schemas = document["components"]["schemas"]
        .as_object_mut()
        .expect("an object");
    for (name, schema) in schemas {
        let is_table = schema.get("properties").is_some() || schema.get("allOf").is_some();
        if is_table && !parts.contains(&format!("#/components/schemas/{name}")) {
            schema["unevaluatedProperties"] = json!(false);
        }
    }
}

/// Collects the references below any `allOf`.
fn collect_parts(value: &Value, parts: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for part in fields
                .get("allOf")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                parts.extend(part["$ref"].as_str().map(str::to_owned));
            }
            fields
                .values()
                .for_each(|value| collect_parts(value, parts));
        }
        Value::Array(items) => items.iter().for_each(|item| collect_parts(item, parts)),
        _ => {}
    }
}

/// Returns the content type of an answer without its parameters.
pub(super) fn content_type<B>(answer: &Response<B>) -> String {
    let value = answer.headers().get(header::CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or("");
    text.split(';').next().unwrap_or("").trim().to_owned()
}

/// Asserts that a request that was accepted, and the answer to any request, are as described.
pub(super) fn assert_described(
    (method, path, body): (&str, &str, &str),
    status: StatusCode,
    content_type: &str,
    answer: &str,
) {
    let described = Described::get();
    let what = format!("{method} {path} with {status}");
    let value = || serde_json::from_str(answer).unwrap_or(Value::Null);
    let Some(template) = described.template(path) else {
        assert_eq!(
            status,
            StatusCode::NOT_FOUND,
            "{what}: not in the description"
        );
        return;
    };
    let at = format!(
        "/paths/{}/{}",
        template.replace('/', "~1"),
        method.to_lowercase()
    );
    let Some(operation) = described.document.pointer(&at) else {
        assert_eq!(
            status,
            StatusCode::METHOD_NOT_ALLOWED,
            "{what}: not in the description"
        );
        return;
    };
    let key = match &operation["responses"][status.as_str()] {
        Value::Null => "default",
        _ => status.as_str(),
    };
    assert!(
        key != "default" || status.as_u16() >= 400,
        "{what}: the status is not described"
    );
    let content = &operation["responses"][key]["content"];
    let types = content.as_object().expect("an object").keys();
    let mut types = types.map(|described| described.split(';').next().unwrap_or("").trim());
    assert!(
        types.any(|known| known == content_type),
        "{what}: {content_type} is not described"
    );
    if content_type == "application/json" {
        described.assert_valid(&format!("{at}/responses/{key}/{SCHEMA}"), &value(), &what);
    }
    if status.is_success() && !operation["requestBody"].is_null() {
        let body = serde_json::from_str(body).expect("it was accepted");
        described.assert_valid(&format!("{at}/requestBody/{SCHEMA}"), &body, &what);
    }
}

#[tokio::test]
async fn the_description_is_answered_and_has_every_route() {
    let plane = Pretended::new();
    let (status, document) = ask(&plane, "GET", "/openapi.json", "").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for route in routes::<Pretended>() {
        let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
        let id = operation["operationId"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            ids.insert(id),
            "{} {}: {operation:#}",
            route.method,
            route.path
        );
        let role = format!("Requires the role `{}`.", route.role);
        assert_eq!(operation["description"], role);
    }
    let text = document.to_string();
    assert!(
        !text.contains("crate::") && !text.contains("[`"),
        "links to items"
    );
}

#[test]
fn examples_of_bodies_are_as_described() {
    let described = Described::get();
    let mut examples = 0;
    for (pointer, _) in &described.compiled {
        let content = pointer.strip_suffix("/schema").expect("of a schema");
        let content = described.document.pointer(content).expect("there");
        if let Some(example) = content.get("example") {
            described.assert_valid(pointer, example, "the example");
            examples += 1;
        }
    }
    assert!(examples >= 10, "{examples} examples");
}

#[test]
fn fields_that_are_not_described_are_found() {
    let described = Described::get();
    let pointer = format!("/paths/~1v1~1tokens/get/responses/200/{SCHEMA}");
    let token = json!({ "name": "ci", "role": "read", "created": "t", "expires": null,
        "expired": false, "last_used": null });
    described.assert_valid(&pointer, &json!([token]), "a token");
    let mut further = token.clone();
    further["secret"] = json!("s");
    let mut lacking = token;
    lacking
        .as_object_mut()
        .expect("an object")
        .remove("created");
    for wrong in [further, lacking] {
        let index = described
            .compiled
            .iter()
            .find(|(known, _)| *known == pointer);
        let (_, index) = index.expect("there");
        assert!(
            described.schemas.validate(&json!([wrong]), *index).is_err(),
            "{wrong}"
        );
    }
}
