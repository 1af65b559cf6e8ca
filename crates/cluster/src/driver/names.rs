//! Names of the requests in the state machine.

use std::collections::HashMap;

use tidegate_place::RequestId;

/// Map between transfer names and request numbers, for running and waiting transfers.
#[derive(Default, Debug)]
pub(super) struct Names {
    names: HashMap<RequestId, String>,
    /// First request of each name.
    ids: HashMap<String, RequestId>,
}

impl Names {
    /// Names a request.
    pub(super) fn add(&mut self, id: RequestId, name: &str) {
        self.names.insert(id, name.to_owned());
        self.ids.entry(name.to_owned()).or_insert(id);
    }

    /// Forgets a request.
    pub(super) fn remove(&mut self, id: RequestId) {
        if let Some(name) = self.names.remove(&id)
            && self.ids.get(&name) == Some(&id)
        {
            self.ids.remove(&name);
        }
    }

    /// Returns the name of a request.
    pub(super) fn name(&self, id: RequestId) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// Returns the request named `name`.
    pub(super) fn id(&self, name: &str) -> Option<RequestId> {
        self.ids.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_request_of_a_name_is_found_until_it_is_removed() {
        let mut names = Names::default();
        names.add(RequestId(1), "x");
        names.add(RequestId(2), "y");
        names.add(RequestId(3), "x");
        assert_eq!(names.id("x"), Some(RequestId(1)));
        assert_eq!(names.name(RequestId(3)), Some("x"));
        assert_eq!((names.id("z"), names.name(RequestId(9))), (None, None));
        names.remove(RequestId(3));
        assert_eq!(names.id("x"), Some(RequestId(1)));
        names.remove(RequestId(1));
        assert_eq!((names.id("x"), names.name(RequestId(1))), (None, None));
    }
}
