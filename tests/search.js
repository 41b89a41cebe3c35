// Prints what the search of the site finds first, by its own worker:
//   node search.js SITE QUERY...
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const [site, ...queries] = process.argv.slice(2);
const folder = path.join(site, 'assets/javascripts/workers');
const script = fs.readdirSync(folder).find(name => /^search.*\.js$/.test(name));
const index = JSON.parse(
  fs.readFileSync(path.join(site, 'search/search_index.json'))
);

// What a browser offers to the worker.
let listener;
let answer;
globalThis.self = globalThis;
globalThis.location = {href: 'https://localhost/'};
globalThis.addEventListener = (_, given) => { listener = given; };
globalThis.postMessage = message => answer(message);
vm.runInThisContext(fs.readFileSync(path.join(folder, script), 'utf8'));

const ask = (type, data) => new Promise(resolve => {
  answer = resolve;
  listener({data: {type, data}});
});

(async () => {
  await ask(0, {...index, options: {suggest: true}});
  const first = {};
  for (const query of queries) {
    const {data} = await ask(2, query);
    first[query] = data.items[0][0].location;
  }
  console.log(JSON.stringify(first));
})();
