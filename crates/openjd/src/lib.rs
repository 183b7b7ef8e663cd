//! Open Job Description templates, 2023-09, as submissions.
