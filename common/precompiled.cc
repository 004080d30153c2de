// Holds the precompiled header that the tensor libraries share.
