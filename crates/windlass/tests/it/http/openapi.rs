//! The contract is the one that was agreed on.

use std::{fs, path::Path};

use axum::http::Method;

use super::server::{Server, json_request};

#[tokio::test]
async fn the_contract_is_the_one_in_the_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
    let kept = fs::read_to_string(path).unwrap_or_default();
    let made = windlass::http::document();
    let difference = kept.lines().zip(made.lines()).enumerate().find(|(_, (kept, made))| kept != made);
    assert!(
        kept == made,
        "docs/reference/openapi.json is not what the code says, first at {difference:?}: look at the difference, \
         and write it anew with `windlass openapi > docs/reference/openapi.json`"
    );
    let server = Server::start().await;
    assert_eq!(server.get("/openapi.json").await.text, made);
}

#[test]
fn every_operation_says_what_it_does() {
    let document: serde_json::Value = serde_json::from_str(&windlass::http::document()).unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            assert!(operation["summary"].is_string(), "{method} {path}");
            for (status, response) in operation["responses"].as_object().unwrap() {
                assert!(
                    response["description"].is_string(),
                    "{method} {path} {status}: OpenAPI 3.1 asks for it"
                );
            }
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} is there twice: SDKs name functions after it");
        }
    }
    assert!(ids.len() >= 28);
}

#[test]
fn generated_clients_find_names_bounds_and_refusals() {
    let document: serde_json::Value = serde_json::from_str(&windlass::http::document()).unwrap();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for name in schemas.keys() {
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{name}");
    }
    let text = document.to_string();
    let referred = text.split("\"$ref\":\"#/components/schemas/").skip(1);
    let mut count = 0;
    for name in referred.map(|rest| rest.split('"').next().unwrap()) {
        assert!(schemas.contains_key(name), "{name} is not there");
        count += 1;
    }
    assert!(count > 200, "{count}");
    let problem = "#/components/schemas/Problem";
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let refusal = &operation["responses"]["default"]["content"]["application/problem+json"];
            assert_eq!(refusal["schema"]["$ref"] == problem, path.starts_with("/v1/"), "{method} {path}");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            for limit in parameters.filter(|parameter| parameter["name"] == "limit") {
                let bounds = (&limit["schema"]["minimum"], &limit["schema"]["maximum"]);
                assert_eq!(bounds, (&1.into(), &1000.into()), "{method} {path}");
            }
        }
    }
    let list = &document["paths"]["/v1/tasks"]["get"]["parameters"][0];
    assert_eq!((&list["name"], &list["explode"]), (&"status".into(), &false.into()));
    assert_eq!(list["schema"]["items"]["$ref"], "#/components/schemas/TaskStatus");
}

/// Who sends a parameter that is ignored gets another answer than the expected one. Only triggers accept unknown ones: the
/// programs that call them may add some.
#[tokio::test]
async fn no_operation_ignores_a_query_parameter() {
    let server = Server::start().await;
    let document: serde_json::Value = serde_json::from_str(&windlass::http::document()).unwrap();
    let mut count = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys().filter(|_| path.starts_with("/v1/")) {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            if path == "/v1/triggers/{name}" && method == Method::POST {
                continue;
            }
            let place = path.replace("{id}", "018bcfe5-6800-7000-8000-000000000001");
            let place = place.replace(['{', '}'], "");
            let answer = server.send(json_request(method.clone(), &format!("{place}?nosuch=1"), "{}")).await;
            let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
            assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text);
            assert!(detail.contains("unknown query parameter \"nosuch\""), "{method} {path}: {detail}");
            count += 1;
        }
    }
    assert!(count >= 55, "{count}");
}
