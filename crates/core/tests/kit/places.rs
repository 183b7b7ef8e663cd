//! Places of outside clients.

use super::Farm;
use windlass_core::RequestId;
use windlass_core::client_places::PlaceRequest;
use windlass_core::engine::{Event, Reply};
use windlass_core::ids::AllocId;

/// A client asks for a place, and a round follows.
pub fn ask(farm: &mut Farm, place: PlaceRequest) -> RequestId {
    let request = farm.ask(|request| Event::Alloc { request, place: Box::new(place) });
    farm.settle();
    request
}

/// The place that a request was given.
pub fn place_of(farm: &Farm, request: RequestId) -> Option<AllocId> {
    match farm.replies.get(&request) {
        Some(Reply::Placed { alloc, .. }) => Some(*alloc),
        _ => None,
    }
}

/// Its client gives it back.
pub fn free(farm: &mut Farm, request: RequestId) {
    let alloc = place_of(farm, request).expect("it has a place");
    farm.tell(Event::Release { alloc });
}
