//! Names of the requests in the state machine.

use tidegate_place::RequestId;

/// Map between transfer names and request numbers, for running and waiting transfers.
#[derive(Default, Debug)]
pub(super) struct Names(Vec<(RequestId, String)>);

impl Names {
    /// Names a request.
    pub(super) fn add(&mut self, id: RequestId, name: &str) {
        self.0.push((id, name.to_owned()));
    }

    /// Returns the name of a request.
    pub(super) fn name(&self, id: RequestId) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| *known == id);
        found.map(|(_, name)| name.as_str())
    }

    /// Returns the request named `name`.
    pub(super) fn id(&self, name: &str) -> Option<RequestId> {
        let found = self.0.iter().find(|(_, known)| known == name);
        found.map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_of_a_name_is_found() {
        let mut names = Names::default();
        names.add(RequestId(1), "x");
        names.add(RequestId(2), "y");
        names.add(RequestId(3), "x");
        assert_eq!(names.id("x"), Some(RequestId(1)));
        assert_eq!(names.name(RequestId(3)), Some("x"));
        assert_eq!((names.id("z"), names.name(RequestId(9))), (None, None));
    }
}
