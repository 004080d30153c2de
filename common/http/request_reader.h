// RequestReader: the bytes of a connection as one request of HTTP/1.0 or 1.1, head first.
//
//   RequestReader reader(/*max_head_bytes=*/16384);
//   if (reader.Feed(bytes) == RequestReader::State::kHeadDone) {
//     if (!reader.ExpectBody(/*max_bytes=*/1 << 20)) ...;  // reader.error()
//     reader.Feed("");                                       // what came with the head
//   }
//
// Boost.Beast parses. Nothing here waits or knows of sockets.
#ifndef TANDEM_COMMON_HTTP_REQUEST_READER_H_
#define TANDEM_COMMON_HTTP_REQUEST_READER_H_

#include <cstddef>
#include <memory>
#include <string_view>

#include "common/http/message.h"

namespace tandem::http {

// Used by one thread.
class RequestReader {
 public:
  enum class State {
    kHead,      // the head is not complete
    kHeadDone,  // it is, and ExpectBody() was not called yet
    kBody,      // the body is not complete
    kDone,
    kFailed,  // error() says why
  };

  explicit RequestReader(size_t max_head_bytes);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // Takes bytes in the order in which they came. Stops behind the head: what follows is kept.
  // Bytes behind the request are dropped.
  State Feed(std::string_view bytes);

  // To be called in kHeadDone. False, with error 413, where the head announces more.
  bool ExpectBody(size_t max_bytes);

  State state() const { return state_; }
  const Error& error() const { return error_; }
  // Complete with its head; the body is there in kDone.
  Request& request() { return request_; }

  // Bytes that are held, and their end: nothing is fed after that.
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
  std::string pending_;  // fed, and not parsed
  bool started_ = false;
  bool excess_ = false;
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_REQUEST_READER_H_
