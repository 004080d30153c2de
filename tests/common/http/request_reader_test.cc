#include "common/http/request_reader.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::http {
namespace {

using State = RequestReader::State;

constexpr char kGet[] = "GET /a%20b?x=1 HTTP/1.1\r\nHost: localhost\r\nX-Y: z\r\n\r\n";

// The state after all of `text`, given `piece` bytes at a time.
State Read(RequestReader& reader, const std::string& text, size_t piece, size_t max_body = 1000) {
  for (size_t at = 0; at < text.size(); at += piece) {
    if (reader.Feed(text.substr(at, piece)) != State::kHeadDone) continue;
    if (!reader.ExpectBody(max_body)) break;
    reader.Feed("");
  }
  return reader.state();
}

TEST(RequestReader, ReadsARequestWhateverItsPieces) {
  const std::string post =
      "POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
  for (const size_t piece : {1, 2, 7, 1000}) {
    RequestReader get(1024);
    ASSERT_EQ(Read(get, kGet, piece), State::kDone) << get.error().message;
    EXPECT_EQ(get.request().method, "GET");
    EXPECT_EQ(get.request().path, "/a b");
    EXPECT_EQ(get.request().query, "x=1");
    EXPECT_EQ(*get.request().Header("x-y"), "z");
    EXPECT_FALSE(get.has_excess());
    RequestReader chunked(1024);
    ASSERT_EQ(Read(chunked, post, piece), State::kDone) << chunked.error().message;
    EXPECT_EQ(chunked.request().body, "abcde");
  }
}

TEST(RequestReader, AnEmptyChunkedBodyMayComeInAnyPieces) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const std::string& body : {std::string("0\r\n\r\n"), std::string("0\r\nX: y\r\n\r\n")}) {
    for (size_t piece = 1; piece <= 8; ++piece) {
      RequestReader reader(1024);
      EXPECT_EQ(Read(reader, head + body, piece), State::kDone) << piece << body;
      EXPECT_EQ(reader.request().body, "");
    }
  }
}

TEST(RequestReader, WaitsForTheWholeBody) {
  RequestReader reader(1024);
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\n";
  EXPECT_EQ(Read(reader, head + "ab", 1), State::kBody);
  EXPECT_EQ(reader.Feed("cGET / HTTP/1.1"), State::kDone);
  EXPECT_EQ(reader.request().body, "abc");
  EXPECT_TRUE(reader.has_excess());
}

TEST(RequestReader, KeepsNoMoreThanCame) {
  RequestReader reader(1024);
  Read(reader, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\nab", 1000,
       2'000'000'000);
  EXPECT_EQ(reader.state(), State::kBody);
  EXPECT_EQ(reader.size_bytes(), 2u);
}

TEST(RequestReader, RefusesBodiesAboveTheLimit) {
  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  for (const std::string& rest :
       {std::string("Content-Length: 11\r\n\r\n"),
        std::string("Transfer-Encoding: chunked\r\n\r\n6\r\n123456\r\n5\r\n12345\r\n0\r\n\r\n")}) {
    RequestReader reader(1024);
    EXPECT_EQ(Read(reader, post + rest, 1, /*max_body=*/10), State::kFailed) << rest;
    EXPECT_EQ(reader.error().code, 413) << rest;
  }
  RequestReader exact(1024);
  EXPECT_EQ(Read(exact, post + "Content-Length: 10\r\n\r\n1234567890", 3, 10), State::kDone);
}

TEST(RequestReader, RefusesWhatIsNoRequest) {
  const auto code = [](const std::string& text) {
    RequestReader reader(256);
    return Read(reader, text, 1) == State::kFailed ? reader.error().code : 0;
  };
  EXPECT_EQ(code("\x16\x03\x01\x02\r\n\r\n"), 400);
  EXPECT_EQ(code("GET / HTTP/2.0\r\nHost: h\r\n\r\n"), 400);
  EXPECT_EQ(code("GET / HTTP/1.1\r\n\r\n"), 400) << "without Host";
  EXPECT_EQ(code("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(code("GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
  EXPECT_EQ(code("GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
  EXPECT_EQ(code("GET /%00 HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
  EXPECT_EQ(code("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(code("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n"),
            400);
  EXPECT_EQ(code("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
            400);
  EXPECT_EQ(code("GET / HTTP/1.1\r\nHost: h\r\nX: " + std::string(300, 'a')), 431);
  EXPECT_EQ(code(std::string(300, 'a')), 431);
  EXPECT_EQ(code("GET / HTTP/1.0\r\n\r\n"), 0);
  const std::string chunked = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(code(chunked + "g\r\n\r\n"), 400);
  EXPECT_EQ(code(chunked + "1;" + std::string(300, 'a')), 431);
  EXPECT_EQ(code(chunked + "0\r\nX: " + std::string(300, 'a')), 431);
}

}  // namespace
}  // namespace tandem::http
