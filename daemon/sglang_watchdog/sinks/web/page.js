'use strict';
const key = 'sglang-watchdog-token';
const inHash = new URLSearchParams(location.hash.slice(1)).get('token');
if (inHash) { sessionStorage.setItem(key, inHash); history.replaceState(null, '', location.pathname + location.search); }
const token = () => sessionStorage.getItem(key);
const headers = () => token() ? { Authorization: 'Bearer ' + token() } : {};
const live = document.getElementById('live');
const say = (text, stale) => { live.textContent = text; live.className = stale ? 'stale' : 'soft'; };
let newest = '', pending = 0, busy = false;

async function refresh() {
  if (busy) { pending = 1; return; }
  busy = true;
  try {
    const answer = await fetch(location.pathname, { headers: headers(), cache: 'no-store' });
    if (answer.status === 401 && document.getElementById('token')) { say('The token is not known.', true); return; }
    const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('main');
    const open = new Set([...document.querySelectorAll('details[open][id]')].map(each => each.id));
    fresh.querySelectorAll('details[id]').forEach(each => { each.open = each.open || open.has(each.id); });
    document.querySelector('main').replaceWith(fresh);
  } finally {
    busy = false;
    if (pending) { pending = 0; setTimeout(refresh, 300); }
  }
}

async function follow() {
  for (;;) {
    try {
      const answer = await fetch('api/v1/changes', { headers: { ...headers(), ...(newest && { 'Last-Event-ID': newest }) } });
      if (!answer.ok) throw new Error(String(answer.status));
      say('live', false);
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = ''; ;) {
        const { value, done } = await reader.read();
        if (done) break;
        const lines = (rest + value).split('\n');
        rest = lines.pop();
        const ids = lines.filter(line => line.startsWith('id: '));
        if (ids.length) { newest = ids[ids.length - 1].slice(4); refresh(); }
      }
    } catch (fault) { say('not connected: trying again', true); }
    await new Promise(done => setTimeout(done, 2000));
    if (!document.hidden) refresh().catch(() => {});
  }
}

document.addEventListener('submit', event => {
  event.preventDefault();
  sessionStorage.setItem(key, document.getElementById('token').value.trim());
  refresh().then(start);
});
document.addEventListener('click', async event => {
  const id = event.target.dataset && event.target.dataset.take;
  if (!id) return;
  const note = prompt('Acknowledge: what should others know?', '');
  if (note === null) return;
  const answer = await fetch('api/v1/findings/' + encodeURIComponent(id) + '/acknowledgement', {
    method: 'POST', headers: { ...headers(), 'Content-Type': 'application/json' }, body: JSON.stringify({ note }) });
  if (!answer.ok) say('Not acknowledged: ' + (await answer.json()).detail, true);
  refresh();
});
let started = false;
function start() {
  document.body.classList.toggle('writes', Boolean(token()));
  if (started || document.getElementById('token') || !document.body.dataset.follow) return;
  started = true;
  follow();
  setInterval(() => { if (!document.hidden) refresh().catch(() => {}); }, 5000);
}
if (document.getElementById('token') && token()) refresh().then(start); else start();
