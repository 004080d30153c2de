#include "tests/support/http2_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tandem::testing {
namespace {

// RFC 9113.
constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kData = 0, kHeaders = 1, kRstStream = 3, kSettings = 4, kPing = 6, kGoAway = 7,
                  kWindowUpdate = 8, kContinuation = 9;
constexpr uint8_t kAck = 1, kEndStream = 1, kEndHeaders = 4;
constexpr uint16_t kInitialWindowSize = 4;
constexpr size_t kMaxFrameBytes = 16384;
constexpr uint32_t kCancel = 8;
constexpr size_t kFrameHeaderBytes = 9;
// The static table of RFC 7541 ends with 61; the newest entry of the dynamic one follows.
constexpr uint8_t kFirstDynamic = 62;
constexpr size_t kBatchBytes = 64 << 10;

std::string BigEndian(uint32_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
  return out;
}

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, absl::string_view payload) {
  return absl::StrCat(BigEndian(static_cast<uint32_t>(payload.size()), 3),
                      std::string(1, static_cast<char>(type)),
                      std::string(1, static_cast<char>(flags)), BigEndian(stream, 4), payload);
}

// The length of a string of HPACK, with a prefix of 7 bits.
std::string HpackLength(size_t rest) {
  std::string out;
  if (rest < 127) {
    out.push_back(static_cast<char>(rest));
  } else {
    out.push_back(127);
    for (rest -= 127; rest >= 128; rest >>= 7) out.push_back(static_cast<char>(rest % 128 + 128));
    out.push_back(static_cast<char>(rest));
  }
  return out;
}

// Its length and its bytes as they are.
std::string HpackString(absl::string_view text) {
  return absl::StrCat(HpackLength(text.size()), text);
}

uint32_t ReadBigEndian(absl::string_view bytes) {
  uint32_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

std::string MessagePrefix(bool compressed, size_t bytes) {
  return absl::StrCat(std::string(1, compressed ? 1 : 0),
                      BigEndian(static_cast<uint32_t>(bytes), 4));
}

// In full, and kept in the server's table.
std::string FirstBlock(const HttpHeaders& headers) {
  std::string out;
  for (const auto& [name, value] : headers) {
    absl::StrAppend(&out, "\x40", HpackString(name), HpackString(value));
  }
  return out;
}

// By their places in the table.
std::string LaterBlock(const HttpHeaders& headers) {
  std::string out;
  for (size_t i = headers.size(); i > 0; --i) {
    out.push_back(static_cast<char>(0x80 | (kFirstDynamic + i - 1)));
  }
  return out;
}

}  // namespace

HttpHeaders GrpcHeaders(const std::string& path, const std::string& authorization) {
  HttpHeaders headers = {{":method", "POST"}, {":scheme", "http"},
                         {":path", path},     {":authority", "localhost"},
                         {"te", "trailers"},  {"content-type", "application/grpc"}};
  if (!authorization.empty()) headers.emplace_back("authorization", authorization);
  return headers;
}

Http2Client::~Http2Client() = default;

absl::Status Http2Client::Connect() {
  fd_ = host::FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(options_.port));
  if (!fd_.is_open() ||
      connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return absl::UnavailableError("cannot connect");
  }
  if (options_.tls) {
    context_.reset(SSL_CTX_new(TLS_client_method()));
    constexpr unsigned char kProtocol[] = "\x02h2";
    SSL_CTX_set_alpn_protos(context_.get(), kProtocol, sizeof(kProtocol) - 1);
    session_.reset(SSL_new(context_.get()));
    SSL_set_fd(session_.get(), fd_.get());
    if (SSL_connect(session_.get()) != 1) return absl::UnavailableError("no TLS");
  }
  fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
  if (!SendAll(kPreface) || !SendAll(Frame(kSettings, 0, 0, ""))) {
    return absl::UnavailableError("the server closed the connection");
  }
  const absl::Time deadline = absl::Now() + options_.timeout;
  while (!settings_seen_ && !closed_ && absl::Now() < deadline) Receive(absl::Seconds(1));
  if (!settings_seen_) return absl::UnavailableError("the server sent no SETTINGS");
  return absl::OkStatus();
}

int64_t Http2Client::ResetStreams(int64_t count) {
  const std::string later = LaterBlock(options_.headers);
  std::string batch;
  int64_t sent = 0;
  for (int64_t i = 0; i < count && !closed_; ++i) {
    const bool first = next_stream_ == 1;
    absl::StrAppend(
        &batch,
        Frame(kHeaders, kEndHeaders, next_stream_, first ? FirstBlock(options_.headers) : later),
        Frame(kRstStream, 0, next_stream_, BigEndian(kCancel, 4)));
    next_stream_ += 2;
    if (batch.size() < kBatchBytes && i + 1 < count) continue;
    if (!SendAll(batch)) break;
    batch.clear();
    sent = i + 1;
  }
  return sent;
}

int64_t Http2Client::SendEndlessHeader(int64_t bytes, size_t frame_bytes) {
  constexpr size_t kStatedLength = size_t{1} << 30;
  SendAll(Frame(kHeaders, 0, next_stream_,
                absl::StrCat(FirstBlock(options_.headers), std::string(1, '\0'), HpackString("a"),
                             HpackLength(kStatedLength))));
  const std::string frame = Frame(kContinuation, 0, next_stream_, std::string(frame_bytes, 'x'));
  std::string batch;
  while (batch.size() < kBatchBytes) batch += frame;
  int64_t sent = 0;
  while (sent < bytes && SendAll(batch)) sent += static_cast<int64_t>(batch.size());
  return sent;
}

int64_t Http2Client::SendUnfinishedMessages(int calls, size_t message_bytes) {
  std::map<uint32_t, size_t> left;
  for (int i = 0; i < calls; ++i, next_stream_ += 2) {
    const bool first = next_stream_ == 1;
    SendAll(Frame(kHeaders, kEndHeaders, next_stream_,
                  first ? FirstBlock(options_.headers) : LaterBlock(options_.headers)));
    SendAll(Frame(kData, 0, next_stream_, MessagePrefix(/*compressed=*/false, message_bytes)));
    for (const uint32_t window : {uint32_t{0}, next_stream_}) windows_[window] -= 5;
    windows_[next_stream_] += initial_window_;
    left[next_stream_] = message_bytes - 1;
  }
  windows_[0] += 65535;
  int64_t sent = 0;
  absl::Time until = absl::Now() + absl::Seconds(1);
  while (!closed_ && absl::Now() < until) {
    for (auto& [stream, rest] : left) {
      const int64_t may = std::min({static_cast<int64_t>(rest), windows_[0], windows_[stream],
                                    static_cast<int64_t>(kMaxFrameBytes)});
      if (may <= 0) continue;
      SendAll(Frame(kData, 0, stream, std::string(static_cast<size_t>(may), 'x')));
      rest -= static_cast<size_t>(may);
      windows_[0] -= may;
      windows_[stream] -= may;
      sent += may;
      until = absl::Now() + absl::Seconds(1);
    }
    Receive(absl::Milliseconds(20));
  }
  return sent;
}

bool Http2Client::SendMessage(absl::string_view message, bool compressed) {
  const std::string bytes = absl::StrCat(MessagePrefix(compressed, message.size()), message);
  std::string frames = Frame(kHeaders, kEndHeaders, next_stream_, FirstBlock(options_.headers));
  for (size_t begin = 0; begin < bytes.size(); begin += kMaxFrameBytes) {
    const bool last = begin + kMaxFrameBytes >= bytes.size();
    frames +=
        Frame(kData, last ? kEndStream : 0, next_stream_, bytes.substr(begin, kMaxFrameBytes));
  }
  next_stream_ += 2;
  return SendAll(frames);
}

absl::Status Http2Client::Ping() {
  pong_seen_ = false;
  SendAll(Frame(kPing, 0, 0, "whoareu?"));
  const absl::Time deadline = absl::Now() + options_.timeout;
  while (!pong_seen_ && !closed_ && absl::Now() < deadline) Receive(absl::Seconds(1));
  if (pong_seen_) return absl::OkStatus();
  return absl::UnavailableError(closed_ ? "the server closed the connection"
                                        : "the server did not answer a PING");
}

bool Http2Client::SendAll(absl::string_view bytes) {
  const absl::Time deadline = absl::Now() + options_.timeout;
  std::string queue = std::exchange(answers_, "");
  queue.append(bytes.data(), bytes.size());
  absl::string_view rest = queue;
  while (!rest.empty() && !closed_) {
    const int64_t written = Write(rest);
    if (written > 0) rest.remove_prefix(static_cast<size_t>(written));
    // A server whose answers nobody reads would stop to read.
    Receive(written > 0 ? absl::ZeroDuration() : absl::Milliseconds(100));
    if (absl::Now() > deadline) return false;
  }
  return !closed_;
}

int64_t Http2Client::Write(absl::string_view bytes) {
  if (session_ != nullptr) {
    // What is tried again after "not now" may be given from another place.
    SSL_set_mode(session_.get(),
                 SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    const int written = SSL_write(session_.get(), bytes.data(), static_cast<int>(bytes.size()));
    if (written > 0) return written;
    const int error = SSL_get_error(session_.get(), written);
    if (error != SSL_ERROR_WANT_WRITE && error != SSL_ERROR_WANT_READ) closed_ = true;
    return 0;
  }
  const ssize_t written = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (written < 0 && errno != EAGAIN && errno != EINTR) closed_ = true;
  return std::max<ssize_t>(written, 0);
}

int64_t Http2Client::Read(char* to, size_t size) {
  if (session_ != nullptr) {
    const int count = SSL_read(session_.get(), to, static_cast<int>(size));
    if (count > 0) return count;
    const int error = SSL_get_error(session_.get(), count);
    if (error != SSL_ERROR_WANT_WRITE && error != SSL_ERROR_WANT_READ) closed_ = true;
    return 0;
  }
  const ssize_t count = recv(fd_.get(), to, size, 0);
  if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) closed_ = true;
  return std::max<ssize_t>(count, 0);
}

void Http2Client::Receive(absl::Duration wait) {
  std::array<char, 16 << 10> buffer;
  int64_t count = Read(buffer.data(), buffer.size());
  if (count == 0 && !closed_ && wait > absl::ZeroDuration()) {
    pollfd ready{fd_.get(), POLLIN, 0};
    poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(wait)));
    count = Read(buffer.data(), buffer.size());
  }
  received_.append(buffer.data(), static_cast<size_t>(count));
  absl::string_view rest = received_;
  while (rest.size() >= kFrameHeaderBytes) {
    const auto at = [&rest](size_t i) { return static_cast<uint8_t>(rest[i]); };
    const size_t length = size_t{at(0)} << 16 | size_t{at(1)} << 8 | at(2);
    if (rest.size() < kFrameHeaderBytes + length) break;
    HandleFrame(at(3), at(4), ReadBigEndian(rest.substr(5, 4)),
                rest.substr(kFrameHeaderBytes, length));
    rest.remove_prefix(kFrameHeaderBytes + length);
  }
  received_ = std::string(rest);
}

void Http2Client::HandleFrame(uint8_t type, uint8_t flags, uint32_t stream,
                              absl::string_view payload) {
  if (type == kWindowUpdate && payload.size() == 4) {
    windows_[stream] += ReadBigEndian(payload);
  } else if (type == kSettings && (flags & kAck) == 0) {
    settings_seen_ = true;
    for (; payload.size() >= 6; payload.remove_prefix(6)) {
      if (ReadBigEndian(payload.substr(0, 2)) != kInitialWindowSize) continue;
      const int64_t window = ReadBigEndian(payload.substr(2, 4));
      for (auto& [id, left] : windows_) left += id == 0 ? 0 : window - initial_window_;
      initial_window_ = window;
    }
    answers_ += Frame(kSettings, kAck, 0, "");
  } else if (type == kPing && (flags & kAck) == 0) {
    answers_ += Frame(kPing, kAck, 0, payload);
  } else if (type == kPing) {
    pong_seen_ = true;
  } else if (type == kGoAway) {
    goaway_ = true;
  }
}

}  // namespace tandem::testing
