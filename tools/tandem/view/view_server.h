// ViewServer: serves the viewer's page over HTTP, and the page's requests.
//
//   ASSIGN_OR_RETURN(auto runs, OpenRuns({"runs/a", "runs/b"}, "build/bin/tandem-inspect"));
//   ASSIGN_OR_RETURN(auto server, ViewServer::Start("127.0.0.1:8700", std::move(runs)));
//   std::puts(server->url().c_str());
//
//   GET api/runs                            {"runs": [{"name", status}, or {"name", "error"}]}
//   GET api/config?run=R                    the replies of a reader: run_reader.h
//   GET api/metrics?run=R&generation=G&from=I
//   GET api/steps?run=R&set=S&after=N
//   GET api/samples?run=R&set=S&step=N&offset=B
//   GET api/image?run=R&set=S&step=N&sha256=D               an image that a sample names
//   GET api/inspect?run=R&set=S&step=N&sample=K             the model's view: inspector.h
//   GET api/attention?run=R&set=S&step=N&sample=K&layer=L   bytes [num_heads][T][T]
//
// R is a run's index in api/runs, S is "rollouts" or "evaluations", D the digest of an image's file.
#ifndef TANDEM_TOOLS_TANDEM_VIEW_VIEW_SERVER_H_
#define TANDEM_TOOLS_TANDEM_VIEW_VIEW_SERVER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/http/server.h"
#include "tools/tandem/view/open_runs.h"

namespace tandem::view {

// Read-only. No path of a request reaches the file system; images are those that the runs' samples
// name, and only if their content is that of a PNG, JPEG or WebP with the digest asked for. Separate
// threads run the inspectors, so the page stays responsive.
class ViewServer final : private http::Handler {
 public:
  // `listen` is HOST:PORT; port 0 picks a free one. UNAVAILABLE if it cannot be bound.
  static absl::StatusOr<std::unique_ptr<ViewServer>> Start(const std::string& listen,
                                                           std::vector<ViewedRun> runs);
  ~ViewServer() override;
  ViewServer(const ViewServer&) = delete;
  ViewServer& operator=(const ViewServer&) = delete;

  const std::string& url() const { return url_; }
  int port() const { return server_->port(); }

 private:
  explicit ViewServer(std::vector<ViewedRun> runs) : runs_(std::move(runs)) {}
  http::Admission Admit(const http::Request& head) override;
  void Serve(http::Exchange& exchange) override;
  http::Response Refuse(const http::Error& error) const override;

  const std::vector<ViewedRun> runs_;
  std::string url_;
  std::unique_ptr<http::Server> server_;  // destroyed first
};

}  // namespace tandem::view

#endif  // TANDEM_TOOLS_TANDEM_VIEW_VIEW_SERVER_H_
