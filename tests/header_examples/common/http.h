// What the usage examples in common/http leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HTTP_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HTTP_H_

#include "common/http/server.h"

namespace tandem::http::client_example {
extern std::string body;
}  // namespace tandem::http::client_example

namespace tandem::http::exchange_example {
using Base = Handler;
}  // namespace tandem::http::exchange_example

namespace tandem::http::message_example {
extern Request request;
}  // namespace tandem::http::message_example

namespace tandem::http::request_reader_example {
extern std::string bytes;
}  // namespace tandem::http::request_reader_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_HTTP_H_
