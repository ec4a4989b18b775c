"""What two generations differ in, in causal order: by their documents, and tensor by tensor where those differ."""
