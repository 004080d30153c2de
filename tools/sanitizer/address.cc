// What AddressSanitizer needs to know in every program of the preset asan.

// LibTorch keeps what it registers until its end, and the search for leaks would list all of it.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

// A message says where, not only what.
extern "C" const char* __ubsan_default_options() { return "print_stacktrace=1"; }
