// RequestReader: parses a connection's bytes into one HTTP/1.0 or 1.1 request, head first.
//
//   RequestReader reader(/*max_head_bytes=*/16384);
//   if (reader.Feed(bytes) == RequestReader::State::kHeadDone) {
//     if (!reader.ExpectBody(/*max_bytes=*/1 << 20)) return reader.error();
//     reader.Feed("");  // parses the bytes that arrived with the head
//   }
//
// Boost.Beast does the parsing. Nothing here blocks or touches sockets.
#ifndef TANDEM_COMMON_HTTP_REQUEST_READER_H_
#define TANDEM_COMMON_HTTP_REQUEST_READER_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include "common/http/message.h"

namespace tandem::http {

// One thread.
class RequestReader {
 public:
  enum class State {
    kHead,      // the head is not complete
    kHeadDone,  // the head is complete; call ExpectBody() next
    kBody,      // the body is not complete
    kDone,
    kFailed,  // see error()
  };

  explicit RequestReader(size_t max_head_bytes);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // Takes bytes in order of arrival. Stops after the head and keeps what follows it. Drops bytes
  // after the request.
  State Feed(std::string_view bytes);

  // Call in kHeadDone. False, with error 413, if the head announces a larger body.
  bool ExpectBody(size_t max_bytes);

  State state() const { return state_; }
  const Error& error() const { return error_; }
  // Valid once the head is complete; has its body in kDone.
  Request& request() { return request_; }

  // Bytes held in memory. Drop() frees them; feed nothing after it.
  size_t size_bytes() const;
  void Drop();
  bool started() const { return started_; }
  // The client sent more than the request.
  bool has_excess() const { return excess_; }

 private:
  struct Parser;

  State Fail(int code, const char* reason, std::string message);
  State ReadHead();

  const size_t max_head_bytes_;
  const std::unique_ptr<Parser> parser_;
  State state_ = State::kHead;
  Error error_;
  Request request_;
  std::string pending_;  // fed but not parsed yet
  bool started_ = false;
  bool excess_ = false;
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_REQUEST_READER_H_
