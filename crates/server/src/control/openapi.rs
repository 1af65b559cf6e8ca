//! The API's description in OpenAPI 3.1, `GET /openapi.json`, made of the table of routes.

use std::collections::BTreeMap;

use axum::http::{Method, StatusCode};
use serde_json::Value;
use tidegate_api::access::Role;
use tidegate_api::error::ErrorBody;
use utoipa::openapi::path::{
    Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{ArrayBuilder, Object, SchemaFormat, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, Content, ContentBuilder, HttpMethod, InfoBuilder, KnownFormat, OpenApi,
    OpenApiBuilder, Paths, Ref, RefOr, Required, ResponseBuilder, Schema,
};
use utoipa::{IntoParams, ToSchema};

const JSON: &str = "application/json";
/// Name of the scheme of tokens.
const BEARER: &str = "token";

/// Schemas of named types, which operations refer to.
type Schemas = BTreeMap<String, RefOr<Schema>>;

/// Description of what a route does, and of its bodies.
pub(super) struct Description {
    /// Name of the operation, unique; clients that are generated name their functions by it.
    id: &'static str,
    summary: &'static str,
    query: Option<fn() -> Vec<Parameter>>,
    request: Option<Body>,
    answers: Vec<(StatusCode, Body)>,
}

/// Body of a request or of an answer.
struct Body {
    content_type: &'static str,
    example: Option<&'static str>,
    /// Registers the schema of the body and of all types in it, and returns it.
    schema: fn(&mut Schemas) -> RefOr<Schema>,
}

/// Describes a route by the name of its operation and a summary.
pub(super) fn about(id: &'static str, summary: &'static str) -> Description {
    Description {
        id,
        summary,
        query: None,
        request: None,
        answers: Vec::new(),
    }
}

impl Description {
    /// Adds the parameters of the query.
    pub(super) fn query<T: IntoParams>(mut self) -> Description {
        self.query = Some(|| T::into_params(|| Some(ParameterIn::Query)));
        self
    }

    /// Adds the JSON body of the request, with an example in JSON.
    pub(super) fn takes<T: ToSchema>(mut self, example: &'static str) -> Description {
        let body = Body::json(named::<T>);
        self.request = Some(Body {
            example: Some(example),
            ..body
        });
        self
    }

    /// Adds the JSON body of an answer with status 200.
    pub(super) fn answers<T: ToSchema>(self) -> Description {
        self.answers_with::<T>(StatusCode::OK)
    }

    /// Adds the JSON body of an answer with another status than 200.
    pub(super) fn answers_with<T: ToSchema>(mut self, status: StatusCode) -> Description {
        self.answers.push((status, Body::json(named::<T>)));
        self
    }

    /// Adds an answer that is a list.
    pub(super) fn answers_list<T: ToSchema>(mut self) -> Description {
        self.answers.push((StatusCode::OK, Body::json(list::<T>)));
        self
    }

    /// Adds a body of the request that only the daemon reads, a JSON object.
    pub(super) fn takes_file(mut self) -> Description {
        self.request = Some(Body::json(|_| Object::with_type(Type::Object).into()));
        self
    }

    /// Adds an answer that only the daemon reads, a JSON object.
    pub(super) fn answers_file(mut self) -> Description {
        let body = Body::json(|_| Object::with_type(Type::Object).into());
        self.answers.push((StatusCode::OK, body));
        self
    }

    /// Adds an answer of text or bytes.
    pub(super) fn answers_as(mut self, content_type: &'static str) -> Description {
        let schema = |_: &mut Schemas| Object::with_type(Type::String).into();
        let body = Body {
            content_type,
            example: None,
            schema,
        };
        self.answers.push((StatusCode::OK, body));
        self
    }

    /// Makes the operation of the route with `path` that requires `role`.
    fn operation(self, path: &str, role: Role, schemas: &mut Schemas) -> Operation {
        let mut operation = OperationBuilder::new()
            .operation_id(Some(self.id))
            .summary(Some(self.summary))
            .description(Some(format!("Requires the role `{role}`.")))
            .tag(tag(path));
        for parameter in path_parameters(path) {
            operation = operation.parameter(parameter);
        }
        for parameter in self.query.map(|query| query()).unwrap_or_default() {
            operation = operation.parameter(parameter);
        }
        if let Some(body) = self.request {
            let request = RequestBodyBuilder::new()
                .required(Some(Required::True))
                .content(body.content_type, body.content(schemas));
            operation = operation.request_body(Some(request.build()));
        }
        for (status, body) in self.answers {
            let words = status.canonical_reason().unwrap_or("Answer");
            let answer = ResponseBuilder::new()
                .description(words)
                .content(body.content_type, body.content(schemas));
            operation = operation.response(status.as_str(), answer);
        }
        let error = ResponseBuilder::new()
            .description("The request was refused or failed; the status is 400 or more.")
            .content(JSON, Content::new(Some(named::<ErrorBody>(schemas))));
        operation.response("default", error).build()
    }
}

impl Body {
    fn json(schema: fn(&mut Schemas) -> RefOr<Schema>) -> Body {
        Body {
            content_type: JSON,
            example: None,
            schema,
        }
    }

    fn content(&self, schemas: &mut Schemas) -> Content {
        let parse = |text| serde_json::from_str(text).expect("examples are JSON");
        ContentBuilder::new()
            .schema(Some((self.schema)(schemas)))
            .example(self.example.map(parse))
            .build()
    }
}

/// Registers `T` with all types in it and returns a reference to it.
fn named<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    let mut found = Vec::new();
    T::schemas(&mut found);
    found.push((T::name().into_owned(), T::schema()));
    schemas.extend(found);
    Ref::from_schema_name(T::name()).into()
}

/// Registers `T` and returns the schema of a list of it.
fn list<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    ArrayBuilder::new()
        .items(named::<T>(schemas))
        .build()
        .into()
}

/// Returns the group of a path: `vms` of `/v1/vms/{name}/job`.
fn tag(path: &str) -> &str {
    let mut segments = path.trim_start_matches("/v1").split('/');
    segments.nth(1).unwrap_or(path)
}

/// Returns the parameters in a path.
fn path_parameters(path: &str) -> Vec<Parameter> {
    let segments: Vec<&str> = path.split('/').collect();
    let mut parameters = Vec::new();
    for pair in segments.windows(2) {
        let &[before, segment] = pair else { continue };
        let Some(name) = segment.strip_prefix('{').and_then(|s| s.strip_suffix('}')) else {
            continue;
        };
        let (about, schema) = match (before, name) {
            (_, "number") => ("Number that the list has.", number()),
            ("devices", _) => ("Name of the device.", text()),
            ("policies", _) => ("Name of the policy.", text()),
            ("tokens", _) => ("Name of the token.", text()),
            (_, "export") => ("NBD export name of the disk.", text()),
            _ => ("Name of the VM.", text()),
        };
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .description(Some(about))
            .schema(Some(schema));
        parameters.push(parameter.build());
    }
    parameters
}

fn text() -> Schema {
    Object::with_type(Type::String).into()
}

fn number() -> Schema {
    utoipa::openapi::ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int32)))
        .minimum(Some(0))
        .maximum(Some(u32::MAX))
        .build()
        .into()
}

/// Route as the description has it: method, path, role and what it does.
pub(super) type Described = (Method, &'static str, Role, Description);

/// Returns the description of all routes.
fn document(routes: impl IntoIterator<Item = Described>) -> OpenApi {
    let mut schemas = Schemas::new();
    let mut paths = Paths::new();
    for (method, path, role, description) in routes {
        let method = match method {
            Method::PUT => HttpMethod::Put,
            Method::POST => HttpMethod::Post,
            Method::PATCH => HttpMethod::Patch,
            Method::DELETE => HttpMethod::Delete,
            _ => HttpMethod::Get,
        };
        let operation = description.operation(path, role, &mut schemas);
        paths.add_path_operation(path, vec![method], operation);
    }
    let info = InfoBuilder::new()
        .title("Tidegate's control API")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "HTTP/1.1 with JSON on a unix socket, or on TCP with a token. Measured figures have \
             their unit in their name; configured rates, sizes and times are text with units, as \
             in the configuration. Within `/v1`, answers may gain fields and never lose one; \
             requests with unknown fields are refused.",
        ));
    let token = Http::builder()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "On TCP a token of `tidegate token add`; on a unix socket the user of the client has \
             a role, and no token is needed.",
        ));
    let mut components = Components::new();
    components.schemas.extend(schemas);
    components.add_security_scheme(BEARER, SecurityScheme::Http(token.build()));
    let anyone = SecurityRequirement::default();
    let with_token = SecurityRequirement::new(BEARER, Vec::<String>::new());
    OpenApiBuilder::new()
        .info(info.build())
        .paths(paths)
        .components(Some(components))
        .security(Some(vec![anyone, with_token]))
        .build()
}

/// Returns the description as JSON.
pub(super) fn document_json(routes: impl IntoIterator<Item = Described>) -> Value {
    let mut document = serde_json::to_value(document(routes)).expect("plain data");
    tidy_descriptions(&mut document);
    let types = document["components"]["schemas"].clone();
    merge_flattened(&mut document, &types);
    document
}

/// Puts types that refuse unknown fields, and are parts of others, into these: by reference, each
/// would refuse the fields of the other parts. The whole then refuses fields that no part has.
fn merge_flattened(value: &mut Value, types: &Value) {
    match value {
        Value::Object(fields) => {
            let mut closed = false;
            let parts = fields.get_mut("allOf").and_then(Value::as_array_mut);
            for part in parts.into_iter().flatten() {
                let name = part["$ref"].as_str().and_then(|to| to.rsplit('/').next());
                let Some(named) = name.map(|name| &types[name]) else {
                    continue;
                };
                if named["additionalProperties"] == false {
                    *part = named.clone();
                    part.as_object_mut()
                        .map(|part| part.remove("additionalProperties"));
                    closed = true;
                }
            }
            if closed {
                fields.insert("unevaluatedProperties".to_owned(), Value::Bool(false));
            }
            for value in fields.values_mut() {
                merge_flattened(value, types);
            }
        }
        Value::Array(items) => {
            for item in items {
                merge_flattened(item, types);
            }
        }
        _ => {}
    }
}

/// Removes from all descriptions what only the documentation of the types can resolve: the targets
/// of links to items.
fn tidy_descriptions(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if key == "description" => *text = without_links(text),
                    value => tidy_descriptions(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy_descriptions),
        _ => {}
    }
}

/// Returns a text with ``[`X`](target)`` and ``[`X`]`` as `` `X` ``.
fn without_links(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(begin) = rest.find("[`") {
        let Some(length) = rest[begin..].find("`]") else {
            break;
        };
        let end = begin + length;
        plain.push_str(&rest[..begin]);
        plain.push_str(&rest[begin + 1..=end]);
        rest = &rest[end + 2..];
        if let Some(target) = rest.strip_prefix('(') {
            rest = target.split_once(')').map_or("", |(_, rest)| rest);
        }
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_no_links_to_items() {
        let text = "Body of [`X`](crate::x::X), and [`Y`]: `z` [1](2).";
        assert_eq!(without_links(text), "Body of `X`, and `Y`: `z` [1](2).");
        assert_eq!(without_links("open [`x"), "open [`x");
    }

    #[test]
    fn paths_have_a_group_and_parameters() {
        assert_eq!(tag("/v1/vms/{name}/job"), "vms");
        assert_eq!(tag("/healthz"), "healthz");
        let path = "/v1/vms/{name}/schedule/{number}";
        let names: Vec<String> = path_parameters(path).into_iter().map(|p| p.name).collect();
        assert_eq!(names, ["name", "number"]);
        assert!(path_parameters("/v1/vms").is_empty());
    }
}
