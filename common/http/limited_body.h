// LimitedBody: a body type for Boost.Beast's parsers. Include it from .cc files only.
#ifndef TANDEM_COMMON_HTTP_LIMITED_BODY_H_
#define TANDEM_COMMON_HTTP_LIMITED_BODY_H_

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <string>

namespace tandem::http {

// A string that grows as bytes arrive, whatever Content-Length promises, up to its limit. (The
// parsers of Beast 1.74 ignore their own body_limit() if the body arrives with the head.)
struct LimitedBody {
  struct value_type {
    std::string text;
    size_t max_bytes = 0;
  };

  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>&, value_type& body) : body_(body) {}

    void init(const boost::optional<std::uint64_t>&, boost::beast::error_code& error) {
      error = {};
    }

    template <class Buffers>
    std::size_t put(const Buffers& buffers, boost::beast::error_code& error) {
      const size_t size = boost::asio::buffer_size(buffers);
      if (size > body_.max_bytes - body_.text.size()) {
        error = boost::beast::http::error::body_limit;
        return 0;
      }
      for (auto it = boost::asio::buffer_sequence_begin(buffers);
           it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer piece = *it;
        body_.text.append(static_cast<const char*>(piece.data()), piece.size());
      }
      error = {};
      return size;
    }

    void finish(boost::beast::error_code& error) { error = {}; }

   private:
    value_type& body_;
  };
};

}  // namespace tandem::http

#endif  // TANDEM_COMMON_HTTP_LIMITED_BODY_H_
