// A judge behind an OpenAI-compatible URL, whose answers a test writes.
#ifndef TANDEM_TESTS_FAKES_FAKE_JUDGE_H_
#define TANDEM_TESTS_FAKES_FAKE_JUDGE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/http/server.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {

// Thread-safe. Serves up to 64 requests at a time.
class FakeJudge final : private http::Handler {
 public:
  struct Request {
    nlohmann::json body;
    std::string text;                 // of the message, without its images
    std::vector<std::string> images;  // the URLs of the message's images
    std::string path;
    http::Headers headers;
    int number = 0;  // from 0, in order of arrival
  };
  using Answer = std::function<http::Response(const Request&)>;

  explicit FakeJudge(Answer answer) : answer_(std::move(answer)) {
    auto server = http::Server::Start(
        {.listen = "127.0.0.1:0", .limits = {.quick = {.num_threads = 64, .max_queued = 256}}},
        *this);
    EXPECT_OK(server.status());
    if (server.ok()) server_ = *std::move(server);
  }
  ~FakeJudge() override {
    Release();
    server_.reset();
  }

  // The base URL.
  std::string url() const { return absl::StrCat("http://", server_->address(), "/v1"); }

  // A completion whose text is `content`.
  static http::Response Completion(const std::string& content) {
    const nlohmann::json body = {
        {"choices", {{{"message", {{"role", "assistant"}, {"content", content}}}}}}};
    return {.content_type = "application/json", .body = body.dump()};
  }

  int num_requests() const {
    absl::MutexLock lock(&mu_);
    return static_cast<int>(requests_.size());
  }
  std::vector<Request> requests() const {
    absl::MutexLock lock(&mu_);
    return requests_;
  }
  // The most requests that were under way at a time.
  int most_at_once() const {
    absl::MutexLock lock(&mu_);
    return most_at_once_;
  }

  // For answers that hang: returns after Release().
  void Hold() {
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(&released_));
  }
  void Release() {
    absl::MutexLock lock(&mu_);
    released_ = true;
  }
  // Waits until so many requests are under way.
  void AwaitRequests(int count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&] {
      mu_.AssertHeld();
      return num_under_way_ >= count;
    };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1)));
  }

 private:
  http::Admission Admit(const http::Request&) override {
    http::Admission admission;
    admission.max_body_bytes = size_t{4} << 20;
    return admission;
  }

  static void ReadContent(const nlohmann::json& content, Request& request) {
    if (content.is_string()) {
      request.text = content.get<std::string>();
      return;
    }
    for (const nlohmann::json& part : content) {
      if (part["type"] == "text") {
        request.text += part["text"].get<std::string>();
      } else {
        request.images.push_back(part["image_url"]["url"].get<std::string>());
      }
    }
  }

  void Serve(http::Exchange& exchange) override {
    Request request;
    request.body = nlohmann::json::parse(exchange.request().body, nullptr, false);
    if (request.body.is_object() && request.body.contains("messages")) {
      ReadContent(request.body["messages"][0]["content"], request);
    }
    request.path = exchange.request().path;
    request.headers = exchange.request().headers;
    {
      absl::MutexLock lock(&mu_);
      request.number = static_cast<int>(requests_.size());
      requests_.push_back(request);
      most_at_once_ = std::max(most_at_once_, ++num_under_way_);
    }
    exchange.Reply(answer_(request));
    absl::MutexLock lock(&mu_);
    --num_under_way_;
  }

  const Answer answer_;
  mutable absl::Mutex mu_;
  std::vector<Request> requests_ ABSL_GUARDED_BY(mu_);
  int num_under_way_ ABSL_GUARDED_BY(mu_) = 0;
  int most_at_once_ ABSL_GUARDED_BY(mu_) = 0;
  bool released_ ABSL_GUARDED_BY(mu_) = false;
  std::unique_ptr<http::Server> server_;
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_FAKE_JUDGE_H_
